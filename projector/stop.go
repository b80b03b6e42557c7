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
