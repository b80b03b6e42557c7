package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
)

// story plays the teacher's story, one message at a time, and shows after each what the report says.
//
// Its first two are what the teacher does, so they begin in her application's database. The rest is what a broker and a
// careless producer may do to events, so it begins in Kafka.
func (d *demo) story(ctx context.Context, app *shard, model *fitness.Model) error {
	d.say("\nThe teacher's story: what happens, and what the view %s then says of it.", demoView)
	d.say("The first two are transactions in MariaDB; relay and projector bring them there.")
	for i, step := range fitness.Story() {
		from := time.Now()
		if i < 2 {
			if err := app.change(ctx, step); err != nil {
				return err
			}
		} else if err := d.produced(ctx, step.Key, step.Value); err != nil {
			return err
		}
		took, err := d.settled(ctx, from)
		if err != nil {
			return err
		}
		if !step.Poison {
			if err := model.Add(step.Value); err != nil {
				return err
			}
		}
		says, err := d.ask(ctx, fmt.Sprintf("SELECT concat('data_id ', toString(data_id), ': ', toString(result), ' ', unit, ' (version ', toString(version), ')') FROM %s WHERE detect_id = 10000 ORDER BY data_id", demoView))
		if err != nil {
			return err
		}
		d.say("  %-56s → %s   [%.1f s]", step.Note, strings.ReplaceAll(says, "\n", ", "), took.Seconds())
	}
	if err := app.show(ctx, d); err != nil {
		return err
	}
	d.say("\nThe raw table keeps every version with its place in Kafka, until merges drop what is superseded:")
	return d.show(ctx, "SELECT data_id, version, result, is_deleted, _partition, _offset, _origin FROM "+demoRows+
		" WHERE detect_id = 10000 ORDER BY data_id, _offset")
}

// show prints the result of a query as a table.
func (d *demo) show(ctx context.Context, query string) error {
	table, err := d.ask(ctx, query+" FORMAT PrettyCompactNoEscapesMonoBlock")
	if err != nil {
		return err
	}
	d.say("%s", table)
	return nil
}

// bulk produces many further results and compares the view with the model.
func (d *demo) bulk(ctx context.Context, events int, model *fitness.Model) error {
	// Of the events 20 % repeat another one, and a record has four versions.
	const versions, duplicates = 4, 0.2
	generator, err := fitness.New(fitness.Config{
		Seed: 1, Records: max(1, int(float64(events)*(1-duplicates)/versions)), Versions: versions,
		Duplicates: duplicates, Deletions: 0.05, Shuffled: true,
	})
	if err != nil {
		return err
	}
	d.say("\n%d further results of %d records: versions shuffled, 20 %% duplicates, 5 %% deletions.", generator.Len(), generator.Records())
	from := time.Now()
	if err := d.fill(ctx, generator); err != nil {
		return err
	}
	inKafka := time.Since(from)
	took, err := d.settled(ctx, from)
	if err != nil {
		return err
	}
	d.say("  produced in %.1f s; all of them acknowledged by ClickHouse and committed after %.1f s: %.0f events/s; lag 0",
		inKafka.Seconds(), took.Seconds(), float64(generator.Len())/took.Seconds())
	for i := range generator.Len() {
		if err := model.Add(generator.AppendValue(nil, i)); err != nil {
			return err
		}
	}
	report, err := model.Compare(d.rows(ctx, "SELECT "+strings.Join(fitness.Columns(), ", ")+" FROM "+demoView+" FORMAT TabSeparated"))
	if err != nil {
		return err
	}
	d.say("  the view against an independent model of %d events: %s", model.Events(), report)
	if err := report.Err(); err != nil {
		return fmt.Errorf("the view is wrong: %w", err)
	}
	if err := d.show(ctx, "SELECT count() AS physical_rows, uniqExact(data_id) AS records, (SELECT count() FROM "+demoView+
		") AS current_rows, (SELECT count() FROM "+demoDatabase+".fitness_results_conflicts) AS conflicts FROM "+demoRows); err != nil {
		return err
	}
	d.say("The report view fitness_results_by_campaign, of config.yaml:")
	return d.show(ctx, "SELECT * FROM "+demoDatabase+".fitness_results_by_campaign ORDER BY detect_id, project_id LIMIT 5")
}

// fill produces the whole sequence.
func (d *demo) fill(ctx context.Context, generator *fitness.Generator) error {
	failed := kgo.AbortingFirstErrPromise(d.kafka)
	for i := range generator.Len() {
		d.kafka.Produce(ctx, &kgo.Record{Key: generator.AppendKey(nil, i), Value: generator.AppendValue(nil, i)}, failed.Promise())
	}
	return errors.Join(d.kafka.Flush(ctx), failed.Err())
}

// letters shows what was parked and why.
func (d *demo) letters(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.stack.Kafka.Brokers...), kgo.ConsumeTopics(demoTopic+"-dlq"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return fmt.Errorf("read the dead letter: %w", err)
	}
	letter := fetches.Records()[0]
	d.say("The dead letter in %s-dlq: key and value untouched, the reason in its headers", demoTopic)
	d.say("  %s", letter.Value)
	for _, h := range letter.Headers {
		d.say("  %-22s %s", h.Key, h.Value)
	}
	return d.projector.once(ctx, d.out, "status")
}
