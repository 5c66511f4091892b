package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 5: messages whose bodies went before their views, because the disk was too full, are stepped over by pulls and counted; what is beside
// them arrives.
func TestLaw5PullsStepOverViewsWhoseBodyWentEarly(t *testing.T) {
	mem := vfs.NewMem()
	e := start(t, func(_ *Config, o *store.Options) { o.FS, o.Dir, o.SegmentBytes = mem, "/s", 64<<10 })
	e.topic("T", 1)
	e.topic("F", 1)
	var halves []store.HalfEnd
	put := func(m store.Message) int64 {
		t.Helper()
		var rs [1]store.Result
		if e.store.Append([]store.Message{m}, rs[:]); rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
		return rs[0].Address
	}
	for i := range 3 {
		halves = append(halves, store.HalfEnd{Address: put(store.Message{Topic: "T", Half: true, Body: fmt.Append(nil, "half ", i)}), Commit: true})
	}
	for range 100 {
		put(store.Message{Topic: "F", Body: []byte(strings.Repeat("f", 1000))})
	}
	for i := range halves {
		if e.store.EndHalves(context.Background(), halves[i:i+1]); halves[i].Err != nil {
			t.Fatal(halves[i].Err)
		}
		if i < 2 {
			put(store.Message{Topic: "T", Body: fmt.Append(nil, "plain ", i)})
		}
	}
	if err := e.store.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	const total = 1 << 40
	mem.SetDisk(total*15/100-1, total)
	if n, err := e.store.Clean(); n != 1 || err != nil {
		t.Fatalf("%d segments deleted, %v", n, err)
	}
	c := e.dial()
	pull := func(offset int64) (*reply, []string) {
		r := c.pull(pullReq{group: "G", topic: "T", offset: offset, sub: "*"})
		var bodies []string
		if r.Code == 0 {
			for _, v := range records(t, r.body) {
				bodies = append(bodies, string(v.Body()))
			}
		}
		return r, bodies
	}
	r, got := pull(0)
	if r.Code != 0 || fmt.Sprint(got) != "[plain 0 plain 1]" || num(t, r, "nextBeginOffset") != 5 {
		t.Errorf("%v with %q, want the two plain messages", r, got)
	}
	if n := e.b.Stats().SteppedOver; n != 3 {
		t.Errorf("%d are counted, want 3", n)
	}
	if r, _ := pull(4); r.Code != remoting.RespPullRetryImmediately || num(t, r, "nextBeginOffset") != 5 {
		t.Errorf("%v, want to go on at 5", r)
	}
}
