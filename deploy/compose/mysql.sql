-- The authoritative side of config.yaml: current rows, what was deleted with the version of the deletion, and the
-- outbox of their events.

CREATE TABLE fitness_result (
    data_id    BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    detect_id  BIGINT UNSIGNED NOT NULL,
    user_id    BIGINT UNSIGNED NOT NULL,
    project_id INT UNSIGNED    NOT NULL,
    version    BIGINT UNSIGNED NOT NULL,
    result     DECIMAL(18, 3)  NOT NULL,
    unit       VARCHAR(16)     NOT NULL,
    KEY (detect_id)
);

CREATE TABLE fitness_result_deletion (
    data_id   BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    detect_id BIGINT UNSIGNED NOT NULL,
    version   BIGINT UNSIGNED NOT NULL,
    KEY (detect_id)
);

-- What follows is printed by: projector outbox ddl
-- MariaDB 10.6 and MySQL 8.0.13 or later. MySQL 8.0.1 to 8.0.12 knows no DEFAULT (…):
-- leave both out there, and let the application insert UTC_TIMESTAMP(6) into
-- created_at and due_at.
CREATE TABLE IF NOT EXISTS `outbox` (
  id             BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  -- written by the application, in the transaction that changes the aggregate
  event_id       VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  aggregate_type VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  aggregate_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version        BIGINT UNSIGNED NOT NULL,
  payload        MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL,
  -- written by the relay
  created_at     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  state          ENUM('due', 'claimed', 'sent', 'parked', 'superseded') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'due',
  due_at         DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  attempts       INT UNSIGNED NOT NULL DEFAULT 0,
  claim_token    BIGINT UNSIGNED NOT NULL DEFAULT 0,
  claimed_by     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  last_error     VARCHAR(500) CHARACTER SET utf8mb4 NULL,
  sent_partition INT NULL,
  sent_offset    BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY event (event_id),
  UNIQUE KEY version (aggregate_type, aggregate_id, version),
  KEY due (state, due_at, id)
) ENGINE=InnoDB;
