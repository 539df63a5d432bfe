-- name: user_config_get
-- A setting as the hall has it.
SELECT value FROM user_config WHERE key = :key;
