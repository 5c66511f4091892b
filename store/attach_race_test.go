package store_test

import (
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// A writer may look at a topic's mark just before an attach sets it. Its batch is behind the attach all the same.
func TestLaw5MessagesSentAsAGroupAttachesAreOwed(t *testing.T) {
	told := newLedger()
	s := open(t, store.Options{SegmentBytes: 1 << 20, Exchange: newFanout(), Observer: told})
	for i := range 300 {
		topic := fmt.Sprint("T", i)
		addTopic(t, s, topic, meta.Async)
		operate(t, s, bindOps(topic, "g")[0])
		at, err := s.Operate([]state.Op{{Kind: state.OpAttach, Topic: topic, Group: "g"}})
		if err != nil {
			t.Fatal(err)
		}
		for { // as soon as anybody can see that the group is attached
			if p, _ := s.Cursor(topic, "g"); p.Attached {
				break
			}
		}
		var ms [20]store.Message
		var rs [20]store.Result
		for k := range ms {
			ms[k] = store.Message{Topic: topic, Body: []byte("x")}
		}
		s.Append(ms[:], rs[:])
		settle(t, s)
		if got := told.owedOf(topic, 0); len(got) != len(ms) {
			t.Fatalf("%s: %d of %d messages behind the attach at %d are owed", topic, len(got), len(ms), at)
		}
	}
}
