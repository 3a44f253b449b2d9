-- Version 2. However many windows answer an approval, one answer counts: the database itself refuses the second.

CREATE UNIQUE INDEX one_resolution_per_approval ON events (stream, item) WHERE kind = 'ApprovalResolved';
