package meta

import (
	"errors"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestAttributesAreRocketMQsAndOurs(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		ok          bool
	}{
		{"message.type", "TRANSACTION", true}, {"message.type", "banana", false}, {"message.type", "MIXED", false}, {"message.type", "", false},
		{"queue.type", "BatchCQ", true}, {"queue.type", "batchcq", false}, {"cleanup.policy", "DELETE", true}, {"cleanup.policy", "", false},
		{"reserve.time", "-1", true}, {"reserve.time", "+5", true}, {"reserve.time", "-2", false}, {"reserve.time", "9223372036854775808", false},
		{DurabilityAttribute, "sync", true}, {DurabilityAttribute, "replicated", false}, {UntilConsumedAttribute, "36h", true},
		{UntilConsumedAttribute, "169h", false}, {OnceAttribute, "false", true}, {OnceAttribute, "yes", false}, {"fusion.x", "1", false}, {"", "1", false},
	} {
		var bad *Invalid
		if err := CheckAttribute(tc.name, tc.value); (err == nil) != tc.ok || err != nil && !errors.As(err, &bad) {
			t.Errorf("CheckAttribute(%q, %q) = %v, want accepted %v", tc.name, tc.value, err, tc.ok)
		}
	}
}

// A table that another broker has written is read whatever attributes it has, and its topics can be changed.
func TestUnknownAttributesOfATableStay(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, TopicTable, `{"topicConfigTable":{"T":{"topicName":"T","attributes":{"of.another":"1","message.type":"banana","fusion.durability":"disk"}}}}`)
	topics, _, _, err := Open(Config{FS: fsys, Dir: dir, Damaged: func(d Damage) { t.Errorf("%+v", d) }})
	if err != nil {
		t.Fatal(err)
	}
	got := topics.Get("T")
	if got == nil || len(got.Attributes) != 3 || got.Durability(Async) != Async {
		t.Fatalf("read as %+v", got)
	}
	if _, after, err := topics.Change("T", func(c *Topic) error { c.Perm = 4; delete(c.Attributes, DurabilityAttribute); return nil }); err != nil || after.Perm != 4 || len(after.Attributes) != 2 {
		t.Errorf("changed to %+v, %v", after, err)
	}
}
