CREATE TABLE IF NOT EXISTS `reporting`.`fitness_results_g1`
(
    `data_id` UInt64,
    `detect_id` UInt64,
    `user_id` UInt64,
    `project_id` UInt32,
    `version` UInt64,
    `result` Decimal(18, 3),
    `unit` LowCardinality(String),
    `is_deleted` Bool,
    `event_id` String,
    `_topic` LowCardinality(String),
    `_partition` Int32,
    `_offset` Int64,
    `_ingested_at` DateTime64(3, 'UTC') DEFAULT now64(3),
    `_origin` LowCardinality(String),
    `_generation` UInt32,
    CONSTRAINT generation_fence CHECK `_generation` >= 1
)
ENGINE = ReplacingMergeTree(`version`)
PARTITION BY detect_id % 8
ORDER BY (`detect_id`, `data_id`)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Every version of every record, generation 1. Query fitness_results_current instead.';

CREATE OR REPLACE VIEW `reporting`.`fitness_results_current`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `data_id`,
    `detect_id`,
    `user_id`,
    `project_id`,
    `version`,
    `result`,
    `unit`,
    `is_deleted`,
    `event_id`
FROM `reporting`.`fitness_results_g1` FINAL
WHERE `is_deleted` = 0
SETTINGS optimize_move_to_prewhere_if_final = 0, use_skip_indexes_if_final_exact_mode = 1, apply_row_policy_after_final = 1, apply_deleted_mask = 1, do_not_merge_across_partitions_select_final = 1
COMMENT 'Current rows of fitness_results: each record once, in its newest version, deleted records left out. Query this. [projector fitness_results e3c0e5f27aca]';

CREATE OR REPLACE VIEW `reporting`.`fitness_results_versions`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `data_id`,
    `detect_id`,
    `user_id`,
    `project_id`,
    `version`,
    `result`,
    `unit`,
    `is_deleted`,
    `event_id`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_ingested_at`,
    `_origin`,
    `_generation`
FROM `reporting`.`fitness_results_g1`
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Every stored row of fitness_results with where it came from. Merges remove rows that a newer version replaced. [projector fitness_results 1f805548fe2a]';

CREATE OR REPLACE VIEW `reporting`.`fitness_results_conflicts`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `data_id`,
    `detect_id`,
    `user_id`,
    `project_id`,
    `version`,
    `result`,
    `unit`,
    `is_deleted`,
    `event_id`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_ingested_at`,
    `_origin`,
    `_generation`
FROM `reporting`.`fitness_results_g1`
WHERE (`data_id`, `version`) IN
(
    SELECT `data_id`, `version`
    FROM `reporting`.`fitness_results_g1`
    GROUP BY `data_id`, `version`
    HAVING min(sipHash128(tuple(`data_id`, `detect_id`, `user_id`, `project_id`, `version`, `result`, `unit`, `is_deleted`, `event_id`))) != max(sipHash128(tuple(`data_id`, `detect_id`, `user_id`, `project_id`, `version`, `result`, `unit`, `is_deleted`, `event_id`)))
    SETTINGS final = 0, apply_deleted_mask = 1
)
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Rows of fitness_results that have the same record and version but other content. Should be empty. Merges destroy the evidence. [projector fitness_results db7af7cfb692]';

CREATE OR REPLACE VIEW `reporting`.`fitness_results_freshness`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `_topic`,
    `_partition`,
    max(`_offset`) AS newest_offset,
    max(`_ingested_at`) AS newest_ingested_at,
    dateDiff('millisecond', max(`_ingested_at`), now64(3)) / 1000 AS seconds_since,
    count() AS rows
FROM `reporting`.`fitness_results_g1`
WHERE `_origin` = 'stream'
GROUP BY `_topic`, `_partition`
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Per Kafka partition the newest row of fitness_results and its age. [projector fitness_results a25fbb855819]';

CREATE OR REPLACE VIEW `reporting`.`fitness_results_by_campaign`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT detect_id, project_id, count() AS results, avg(result) AS average, max(result) AS best FROM `reporting`.`fitness_results_current` GROUP BY detect_id, project_id
COMMENT 'Report over fitness_results_current. [projector fitness_results a86662b960c3]';
