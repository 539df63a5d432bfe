-- The step that added halted_by read the judge's halts from reasons, which every agent could write: a real one has its
-- report.
UPDATE workflow SET halted_by = NULL
 WHERE halted_by = 'judge'
   AND NOT EXISTS (SELECT 1 FROM judge_report
                    WHERE judge_report.workflow_id = workflow.id AND judge_report.verdict = 'CRITICAL_HALT');
