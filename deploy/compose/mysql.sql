-- The authoritative side of config.yaml: current rows, and what was deleted with the version of the deletion.

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
