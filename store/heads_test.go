package store

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// slowExchange is an exchange that stands still while it is told to.
type slowExchange struct {
	state.Exchange
	hold chan struct{}
}

func (x *slowExchange) Targets(dst []string, at int64, topic string, props []byte) []string {
	<-x.hold
	return x.Exchange.Targets(dst, at, topic, props)
}

// What the dispatcher is behind is in the log: in memory it keeps so many heads and no more, and none is lost by that.
func TestLaw7TheDispatcherKeepsFewHeads(t *testing.T) {
	x := &slowExchange{fanout.New(), make(chan struct{})}
	s, err := Open(Options{Dir: "/s", FS: vfs.NewMem(), Exchange: x, SegmentBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Topics().Put(meta.DefaultTopic("T")); err != nil {
		t.Fatal(err)
	}
	at, err := s.Operate([]state.Op{
		{Kind: state.OpBind, Topic: "T", Group: "g", Binding: state.Binding{Kind: state.BindFanout, WaterMark: -1}},
		{Kind: state.OpAttach, Topic: "T", Group: "g"},
	})
	if err == nil {
		err = s.WaitApplied(t.Context(), at)
	}
	if err != nil {
		t.Fatal(err)
	}
	ms, rs := make([]Message, 1000), make([]Result, 1000)
	for i := range ms {
		ms[i] = Message{Topic: "T", Body: []byte("x")}
	}
	const rounds = 30
	for range rounds {
		s.Append(ms, rs)
	}
	s.dispatch.mu.Lock()
	heads, lost := len(s.dispatch.mu.heads), s.dispatch.mu.lost
	s.dispatch.mu.Unlock()
	if heads > maxHeads || !lost {
		t.Errorf("%d heads wait for the dispatcher, some left out: %v; at most %d may", heads, lost, maxHeads)
	}
	close(x.hold)
	if err := s.WaitApplied(t.Context(), rs[len(rs)-1].Address); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Pending("T", 0, 1<<20)); n != rounds*len(ms) {
		t.Errorf("%d of %d messages are owed", n, rounds*len(ms))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
