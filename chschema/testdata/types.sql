CREATE TABLE IF NOT EXISTS `d`.`t_g12`
(
    `id` UUID,
    `v` UInt64,
    `from` Nullable(String),
    `i8` Int8,
    `i16` Int16,
    `i32` Int32,
    `i64` Int64,
    `i128` Int128,
    `i256` Int256,
    `u8` UInt8,
    `u16` UInt16,
    `u32` UInt32,
    `u64` UInt64,
    `u128` UInt128,
    `u256` UInt256,
    `f32` Float32,
    `f64` Float64,
    `b` Bool,
    `s` String,
    `fs` FixedString(16),
    `uuid` UUID,
    `d` Date,
    `d32` Date32,
    `dt` DateTime,
    `dtz` DateTime('Asia/Shanghai'),
    `dt64` DateTime64(6),
    `dt64z` DateTime64(9, 'UTC'),
    `e8` Enum8('a' = -1, 'it\'s' = 2),
    `e16` Enum16('x' = 1000),
    `ip4` IPv4,
    `ip6` IPv6,
    `dec32` Decimal(9, 2),
    `dec64` Decimal(18, 3),
    `dec128` Decimal(38, 10),
    `dec256` Decimal(76, 38),
    `n` Nullable(Decimal(18, 3)),
    `lc` LowCardinality(String),
    `lcn` LowCardinality(Nullable(String)),
    `lcf` LowCardinality(FixedString(3)),
    `a` Array(Nullable(String)),
    `aa` Array(Array(UInt64)),
    `m` Map(LowCardinality(String), Array(Int32)),
    `tu` Tuple(UInt8, Nullable(String)),
    `tn` Tuple(x Float64, `select` String),
    `ne` Array(Tuple(k String, v Map(String, UInt8))),
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
SETTINGS non_replicated_deduplication_window = 0
COMMENT 'Every version of every record, generation 12. Query t_current instead.';

CREATE OR REPLACE VIEW `d`.`t_current`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`,
    `from`,
    `i8`,
    `i16`,
    `i32`,
    `i64`,
    `i128`,
    `i256`,
    `u8`,
    `u16`,
    `u32`,
    `u64`,
    `u128`,
    `u256`,
    `f32`,
    `f64`,
    `b`,
    `s`,
    `fs`,
    `uuid`,
    `d`,
    `d32`,
    `dt`,
    `dtz`,
    `dt64`,
    `dt64z`,
    `e8`,
    `e16`,
    `ip4`,
    `ip6`,
    `dec32`,
    `dec64`,
    `dec128`,
    `dec256`,
    `n`,
    `lc`,
    `lcn`,
    `lcf`,
    `a`,
    `aa`,
    `m`,
    `tu`,
    `tn`,
    `ne`
FROM `d`.`t_g12` FINAL
SETTINGS optimize_move_to_prewhere_if_final = 0, use_skip_indexes_if_final_exact_mode = 1, apply_row_policy_after_final = 1, apply_deleted_mask = 1, do_not_merge_across_partitions_select_final = 1
COMMENT 'Current rows of t: each record once, in its newest version, deleted records left out. Query this. [projector t fe973222aacf]';

CREATE OR REPLACE VIEW `d`.`t_versions`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`,
    `from`,
    `i8`,
    `i16`,
    `i32`,
    `i64`,
    `i128`,
    `i256`,
    `u8`,
    `u16`,
    `u32`,
    `u64`,
    `u128`,
    `u256`,
    `f32`,
    `f64`,
    `b`,
    `s`,
    `fs`,
    `uuid`,
    `d`,
    `d32`,
    `dt`,
    `dtz`,
    `dt64`,
    `dt64z`,
    `e8`,
    `e16`,
    `ip4`,
    `ip6`,
    `dec32`,
    `dec64`,
    `dec128`,
    `dec256`,
    `n`,
    `lc`,
    `lcn`,
    `lcf`,
    `a`,
    `aa`,
    `m`,
    `tu`,
    `tn`,
    `ne`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_ingested_at`,
    `_origin`,
    `_generation`
FROM `d`.`t_g12`
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Every stored row of t with where it came from. Merges remove rows that a newer version replaced. [projector t 80bb5c35db72]';

CREATE OR REPLACE VIEW `d`.`t_conflicts`
DEFINER = CURRENT_USER SQL SECURITY DEFINER
AS SELECT
    `id`,
    `v`,
    `from`,
    `i8`,
    `i16`,
    `i32`,
    `i64`,
    `i128`,
    `i256`,
    `u8`,
    `u16`,
    `u32`,
    `u64`,
    `u128`,
    `u256`,
    `f32`,
    `f64`,
    `b`,
    `s`,
    `fs`,
    `uuid`,
    `d`,
    `d32`,
    `dt`,
    `dtz`,
    `dt64`,
    `dt64z`,
    `e8`,
    `e16`,
    `ip4`,
    `ip6`,
    `dec32`,
    `dec64`,
    `dec128`,
    `dec256`,
    `n`,
    `lc`,
    `lcn`,
    `lcf`,
    `a`,
    `aa`,
    `m`,
    `tu`,
    `tn`,
    `ne`,
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
    HAVING min(sipHash128(tuple(`id`, `v`, `from`, `i8`, `i16`, `i32`, `i64`, `i128`, `i256`, `u8`, `u16`, `u32`, `u64`, `u128`, `u256`, `f32`, `f64`, `b`, `s`, `fs`, `uuid`, `d`, `d32`, `dt`, `dtz`, `dt64`, `dt64z`, `e8`, `e16`, `ip4`, `ip6`, `dec32`, `dec64`, `dec128`, `dec256`, `n`, `lc`, `lcn`, `lcf`, `a`, `aa`, `m`, `tu`, `tn`, `ne`))) != max(sipHash128(tuple(`id`, `v`, `from`, `i8`, `i16`, `i32`, `i64`, `i128`, `i256`, `u8`, `u16`, `u32`, `u64`, `u128`, `u256`, `f32`, `f64`, `b`, `s`, `fs`, `uuid`, `d`, `d32`, `dt`, `dtz`, `dt64`, `dt64z`, `e8`, `e16`, `ip4`, `ip6`, `dec32`, `dec64`, `dec128`, `dec256`, `n`, `lc`, `lcn`, `lcf`, `a`, `aa`, `m`, `tu`, `tn`, `ne`)))
    SETTINGS final = 0, apply_deleted_mask = 1
)
SETTINGS final = 0, apply_deleted_mask = 1
COMMENT 'Rows of t that have the same record and version but other content. Should be empty. Merges destroy the evidence. [projector t 841a1c92ee1e]';

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
COMMENT 'Per Kafka partition the newest row of t and its age. [projector t a65c08cc16f2]';
