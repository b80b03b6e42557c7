package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrGroupBusy is a group that has members, who alone may commit for it.
var ErrGroupBusy = errors.New("the group has members")

// Commit is what a group has committed for a partition.
type Commit struct {
	Offset   int64  // the next one to read
	Epoch    int32  // leader epoch of the record before it, -1 = not known
	Metadata string // whatever the committer wrote beside it
}

// Commits is by topic and partition.
type Commits map[string]map[int32]Commit

// Set adds or replaces one.
func (c Commits) Set(topic string, partition int32, commit Commit) {
	if c[topic] == nil {
		c[topic] = map[int32]Commit{}
	}
	c[topic][partition] = commit
}

// Commits reads what a group has committed. A group that does not exist has
// committed nothing.
func (a *Admin) Commits(ctx context.Context, group string) (Commits, error) {
	responses, err := a.commits(ctx, group)
	if err != nil {
		return nil, err
	}
	all := Commits{}
	for topic, partitions := range responses {
		for partition, c := range partitions {
			if c.Err != nil {
				return nil, fmt.Errorf("fetch offsets of group %s for %s/%d: %w", group, topic, partition, c.Err)
			}
			if c.At >= 0 {
				all.Set(topic, partition, Commit{c.At, c.LeaderEpoch, c.Metadata})
			}
		}
	}
	return all, nil
}

// Commit commits for a group that has no members. One that has is an error that
// wraps ErrGroupBusy: the broker takes commits from its members only.
func (a *Admin) Commit(ctx context.Context, group string, commits Commits) error {
	offsets := kadm.Offsets{}
	for topic, partitions := range commits {
		for partition, c := range partitions {
			offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: c.Offset, LeaderEpoch: c.Epoch, Metadata: c.Metadata})
		}
	}
	err := a.adm.CommitAllOffsets(ctx, group, offsets)
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) {
		return fmt.Errorf("commit offsets of group %s: %w", group, ErrGroupBusy)
	}
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", group, err)
	}
	return nil
}

// Members names the members of a group, as "client on host". A group that does
// not exist has none.
func (a *Admin) Members(ctx context.Context, group string) ([]string, error) {
	var g kadm.DescribedGroup
	err := coordinated(ctx, func() error {
		described, err := a.adm.DescribeGroups(ctx, group)
		g = described[group]
		return cmp.Or(err, g.Err)
	})
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("describe group %s: %w", group, err)
	}
	members := make([]string, len(g.Members))
	for i, m := range g.Members {
		members[i] = fmt.Sprintf("%s on %s", m.ClientID, m.ClientHost)
	}
	slices.Sort(members)
	return members, nil
}

// OffsetsAt returns for every partition the offset of the first record that is
// not older than t; the end where there is none.
func (a *Admin) OffsetsAt(ctx context.Context, topic string, t time.Time) (map[int32]int64, error) {
	listed, err := a.adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets of topic %s at %s: %w", topic, t.UTC().Format(time.RFC3339), err)
	}
	offsets := map[int32]int64{}
	for partition, o := range listed[topic] {
		offsets[partition] = o.Offset
	}
	return offsets, nil
}
