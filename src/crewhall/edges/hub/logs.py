"""Logs: one line each to stderr, `time level logger message key=value …`, with no token in any of them."""

import json
import logging
import re
import sys
import time

_TOKEN = re.compile(r"ch_(operator|agent|browser|link)_[\w-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class LogLine(logging.Formatter):
    """Formats a record as one line; `extra` values follow the message."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        extra = [f"{key}={_value(value)}" for key, value in vars(record).items() if key not in _STANDARD]
        # A message that quotes a request must not look like two lines, nor steer a terminal.
        message = _CONTROL.sub(lambda found: repr(found[0])[1:-1], record.getMessage())
        line = " ".join([at, record.levelname.lower(), record.name, message, *extra])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return _TOKEN.sub(r"ch_\1_…", line)


def _value(value: object) -> str:
    text = str(value)
    return text if re.fullmatch(r"[\w.:/@+-]+", text) else json.dumps(text, ensure_ascii=False)


def set_up(level: str) -> None:
    """Send the process's logs to stderr from this level up; libraries only speak when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("crewhall").setLevel(level.upper())
    if level == "debug":
        root.setLevel(logging.INFO)
    else:
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each try to connect; we tell of outages
