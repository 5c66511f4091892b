package store_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// asked counts the messages that an exchange was asked about.
type asked struct {
	state.Exchange
	n atomic.Int64
}

func (x *asked) Targets(dst []string, at int64, topic string, props []byte) []string {
	x.n.Add(1)
	return x.Exchange.Targets(dst, at, topic, props)
}

func TestLaw6GroupsThatAreOfflineCostATopicNothing(t *testing.T) {
	dir := t.TempDir()
	x, told := &asked{Exchange: newFanout()}, newLedger()
	s := open(t, store.Options{Dir: dir, SegmentBytes: 256 << 10, Exchange: x, Observer: told})
	addTopic(t, s, "T", meta.Async)
	var ops []state.Op
	for i := range 50 {
		ops = append(ops, bindOps("T", fmt.Sprint("g", i))[0])
	}
	operate(t, s, ops...)
	for range 20 {
		send(t, s, "T", 0, "while all are away")
	}
	settle(t, s)
	if n := x.n.Load(); n != 0 {
		t.Errorf("the exchange was asked about %d messages with every group offline", n)
	}

	operate(t, s, state.Op{Kind: state.OpAttach, Topic: "T", Group: "g7"})
	want := []int64{send(t, s, "T", 0, "one").Address, send(t, s, "T", 0, "two").Address}
	if got := told.owedOf("T", 2); !slices.Equal(got, want) {
		t.Errorf("owed to the attached group: %v, want %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	x, told = &asked{Exchange: newFanout()}, newLedger()
	s = open(t, store.Options{Dir: dir, SegmentBytes: 256 << 10, Exchange: x, Observer: told})
	want = append(want, send(t, s, "T", 0, "after a restart").Address)
	if got := told.owedOf("T", 3); !slices.Equal(got, want) {
		t.Errorf("owed after a restart: %v, want %v", got, want)
	}
	asks := x.n.Load()
	operate(t, s, state.Op{Kind: state.OpDetach, Topic: "T", Group: "g7"})
	send(t, s, "T", 0, "away again")
	settle(t, s)
	if n := x.n.Load(); n != asks {
		t.Errorf("the exchange was asked about %d messages after the last group had gone", n-asks)
	}
}
