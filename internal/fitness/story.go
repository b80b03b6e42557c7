package fitness

// Step is one message of the teacher's story.
type Step struct {
	Note       string // what happens, for a reader
	Key, Value []byte
	Poison     bool // becomes a dead letter
}

// The records of the story.
const (
	StoryRecord  = 1 // corrected from 2.21 to 2.31 m
	StoryDeleted = 2 // measured, then deleted
)

// Story returns the messages of the story the project starts from: a teacher corrects a long jump from 2.21 to 2.31 m,
// the old event comes again, the new one too, another record is deleted and an old version of it arrives late, and one
// message cannot be read. Whatever the order, the view must show 2.31 for [StoryRecord] and nothing else.
func Story() []Step {
	jump := func(note string, id, version uint64, result int64, deleted bool) Step {
		e := Event{
			DataID: id, DetectID: 10_000, UserID: 4, ProjectID: 3, Version: version, Result: result, Decimals: 2,
			Unit: "m", IsDeleted: deleted,
		}
		return Step{Note: note, Key: e.AppendKey(nil), Value: e.AppendJSON(nil)}
	}
	return []Step{
		jump("the teacher enters 2.21 m", StoryRecord, 1, 2_210, false),
		jump("she corrects it to 2.31 m: version 2", StoryRecord, 2, 2_310, false),
		jump("the old event is delivered again, after the correction", StoryRecord, 1, 2_210, false),
		jump("and so is the correction", StoryRecord, 2, 2_310, false),
		jump("another jump, 1.98 m", StoryDeleted, 1, 1_980, false),
		jump("it was the wrong pupil's: deleted by version 3", StoryDeleted, 3, 1_980, true),
		jump("its version 2 arrives after the deletion", StoryDeleted, 2, 1_970, false),
		{
			Note: "a message whose result is no number", Key: []byte("1"), Poison: true,
			Value: []byte(`{"eventId":"fitness-result-1-v3","dataId":1,"detectId":10000,"userId":4,"projectId":3,` +
				`"version":3,"result":"2,41","unit":"m","isDeleted":false,"schemaVersion":1}`),
		},
	}
}
