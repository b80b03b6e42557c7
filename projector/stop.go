package projector

import "fmt"

// stopSample is how many records a cut must have before a ratio says anything.
const stopSample = 100

// tooManyRefused returns an error if so much of c was refused that the deployment must be wrong, not the data: a
// mapping for another topic, a producer's new format. It is asked before anything of c is parked or committed, so that
// a corrected deployment reads the same records again.
func (cfg *Config) tooManyRefused(c *cut) error {
	refused := len(c.letters)
	if refused == 0 {
		return nil
	}
	explain := func(format string, args ...any) error {
		first := &c.letters[0]
		return fmt.Errorf("%s: that is a wrong deployment, not bad data; nothing of this batch was parked or committed: correct the mapping and start again, or raise the limit if the events really are like that. The first: %s/%d offset %d: %w",
			fmt.Sprintf(format, args...), first.Topic, first.Partition, first.Offset, first.Error)
	}
	if cfg.StopRatio > 0 && c.records >= stopSample && float64(refused) > cfg.StopRatio*float64(c.records) {
		return explain("%d of %d records were refused, more than stop_ratio (%v)", refused, c.records, cfg.StopRatio)
	}
	if cfg.StopRun > 0 && c.run >= cfg.StopRun {
		return explain("%d records in a row were refused, stop_run is %d", c.run, cfg.StopRun)
	}
	return nil
}

// tooManyRejected is the same question about rows that ClickHouse itself rejects, asked for every one of them: a
// constraint that no row meets would cost two inserts and a read from Kafka for each record of the batch before the
// ratio of the whole is known. rejected counts those of this batch, run those since ClickHouse last took a row: on a
// slow topic whose batches are small only the run ever becomes long.
func (cfg *Config) tooManyRejected(c *cut, rejected, run int, reason error) error {
	explain := func(format string, args ...any) error {
		return fmt.Errorf("%s: that is a wrong deployment, not bad data; nothing of this batch was parked or committed: correct the mapping or the table's constraints and start again, or raise the limit if the events really are like that: %w",
			fmt.Sprintf(format, args...), reason)
	}
	switch {
	case cfg.StopRun > 0 && run >= cfg.StopRun:
		return explain("ClickHouse rejected %d rows in a row, stop_run is %d", run, cfg.StopRun)
	case cfg.StopRun > 0 && rejected > cfg.StopRun:
		return explain("ClickHouse rejected %d rows of one batch, more than stop_run (%d)", rejected, cfg.StopRun)
	case cfg.StopRatio > 0 && c.records >= stopSample && float64(rejected) > cfg.StopRatio*float64(c.records):
		return explain("ClickHouse rejected %d of %d records, more than stop_ratio (%v)", rejected, c.records, cfg.StopRatio)
	}
	return nil
}
