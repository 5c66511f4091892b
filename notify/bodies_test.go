package notify

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// half stores a transaction of the next message and returns its address.
func (w *world) half(topic string) int64 {
	w.t.Helper()
	w.nextID++
	id := fmt.Appendf(nil, "\x00\x00\x00\x00\x00\x00\x00%c\x00\x00\x00\x00\x00\x00\x00\x07", w.nextID)
	var rs [1]store.Result
	w.st.Append([]store.Message{{
		Topic: topic, Half: true, Body: fmt.Appendf(nil, "message %d", w.nextID),
		Properties: record.AppendProperty(record.AppendProperty(nil, "UNIQ_KEY", hex.EncodeToString(id)), "TAGS", "x"),
	}}, rs[:])
	if rs[0].Err != nil {
		w.t.Fatal(rs[0].Err)
	}
	return rs[0].Address
}

func (w *world) commit(half int64) {
	w.t.Helper()
	es := []store.HalfEnd{{Address: half, Commit: true}}
	if w.st.EndHalves(context.Background(), es); es[0].Err != nil {
		w.t.Fatal(es[0].Err)
	}
}

// Law 5: a view is retained, and its body goes, because the disk is too full. What an attached group is owed, in its window or on its retry
// line, keeps the body; a cursor steps over the view, which is counted, and delivers what is behind it.
func TestLaw5ViewsWhoseBodyWentEarlyAreSteppedOver(t *testing.T) {
	w := newWorld(t, 41, nil)
	w.join("S-cursor", fanoutOn("T")).leave()
	w.quiet()
	attached := w.join("S-attached", fanoutOn("T"))
	if err := w.st.Topics().Put(meta.DefaultTopic("F")); err != nil {
		t.Fatal(err)
	}
	halves := []int64{w.half("T"), w.half("T"), w.half("T")}
	ms, rs := make([]store.Message, 5), make([]store.Result, 5)
	for i := range ms {
		ms[i] = store.Message{Topic: "F", Body: make([]byte, 4<<20)}
	}
	if w.st.Append(ms, rs); rs[4].Err != nil {
		t.Fatal(rs[4].Err)
	}
	attached.takes(2)
	for _, h := range halves {
		w.commit(h)
	}
	w.send("T", "x")
	w.until("two deliveries", func() bool { return w.waiting(attached) == 2 })
	w.answer(attached, 0, wire.StatusError)
	w.until("retry line", func() bool { return w.st.RetryCount("S-attached") == 1 })
	attached.takes(1)
	w.answer(attached, 0, wire.NoError)
	w.settle()
	if err := w.st.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}

	const total = 1 << 40
	w.fs.SetDisk(total*15/100-1, total)
	if n, err := w.st.Clean(); err != nil || n != 1 {
		t.Fatalf("%d segments deleted, %v", n, err)
	}
	w.fs.SetDisk(total, total)
	attached.takes(0)
	attached.se.Drained()
	for range 2 {
		w.until("the window", func() bool { return w.waiting(attached) > 0 })
		w.answer(attached, 0, wire.NoError)
	}
	w.advance(11_000_000_000)
	w.until("the retry", func() bool { w.quiet(); return w.waiting(attached) > 0 })
	w.ackAll()
	if n := w.svc.Stats().Lost; n != 0 {
		t.Fatalf("%d messages were lost that an attached group was owed", n)
	}
	if id := uint64(4); !w.got[key{"S-attached", id}].acked || !w.got[key{"S-attached", 1}].acked {
		t.Error("not all were delivered to the attached group")
	}

	w.linger() // until the store owes the attached group nothing, it keeps the bodies
	w.settle()
	behind := w.join("S-cursor")
	w.until("catch-up", func() bool { return w.waiting(behind) == 4 })
	for i := range 3 {
		w.mu.Lock()
		p := behind.inbox[0]
		behind.inbox = behind.inbox[1:]
		w.mu.Unlock()
		if err := behind.se.Load(&p.d, new(Loaded)); err == nil {
			t.Errorf("view %d has a body", i)
		}
	}
	if got := w.ids(behind); len(got) != 1 || got[0] != 4 {
		t.Errorf("behind the views comes %v, want the fourth message", got)
	}
	w.ackAll()
	if n := w.svc.Stats().Lost; n != 3 {
		t.Errorf("%d stepped over are counted, want 3", n)
	}
	w.until("the group to be attached", func() bool { w.quiet(); return w.mode("S-cursor", "T") == "attached" })
	w.check()
}
