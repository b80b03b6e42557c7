CREATE TABLE IF NOT EXISTS `d`.`t_g12`
(
    `id` String,
    `v` UInt8,
    `_topic` LowCardinality(String),
    `_partition` Int32,
    `_offset` Int64,
    `_ingested_at` DateTime64(3, 'UTC') DEFAULT now64(3),
    `_origin` LowCardinality(String),
    `_generation` UInt32,
    CONSTRAINT generation_fence CHECK `_generation` >= 12
)
ENGINE = ReplacingMergeTree(`v`)
ORDER BY (`id`)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Every version of every record, generation 12. Query t_current instead.';

CREATE OR REPLACE VIEW `d`.`t_current`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`
FROM `d`.`t_g12` FINAL
SETTINGS optimize_move_to_prewhere_if_final = 0, use_skip_indexes_if_final_exact_mode = 1, apply_row_policy_after_final = 1, apply_deleted_mask = 1, do_not_merge_across_partitions_select_final = 1
COMMENT 'Current rows of t: each record once, in its newest version, deleted records left out. Query this. [projector t 7113685538bc]';

CREATE OR REPLACE VIEW `d`.`t_versions`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_ingested_at`,
    `_origin`,
    `_generation`
FROM `d`.`t_g12`
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Every stored row of t with where it came from. Merges remove rows that a newer version replaced. [projector t 076ed7f5fd4b]';

CREATE OR REPLACE VIEW `d`.`t_conflicts`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_ingested_at`,
    `_origin`,
    `_generation`
FROM `d`.`t_g12`
WHERE (`id`, `v`) IN
(
    SELECT `id`, `v`
    FROM `d`.`t_g12`
    GROUP BY `id`, `v`
    HAVING min(sipHash128(tuple(`id`, `v`))) != max(sipHash128(tuple(`id`, `v`)))
    SETTINGS final = 0, apply_deleted_mask = 1
)
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Rows of t that have the same record and version but other content. Should be empty. Merges destroy the evidence. [projector t 576dafdbd387]';

CREATE OR REPLACE VIEW `d`.`t_freshness`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `_topic`,
    `_partition`,
    max(`_offset`) AS newest_offset,
    max(`_ingested_at`) AS newest_ingested_at,
    dateDiff('millisecond', max(`_ingested_at`), now64(3)) / 1000 AS seconds_since,
    count() AS rows
FROM `d`.`t_g12`
WHERE `_origin` = 'stream'
GROUP BY `_topic`, `_partition`
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Per Kafka partition the newest row of t and its age. [projector t 5d850da6453a]';
