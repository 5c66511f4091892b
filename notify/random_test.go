package notify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/meta"
)

// bound says what each group of the random test is bound to; the same from the first message on.
var bound = map[string][]wire.Binding{
	"S-all":   {fanoutOn("T"), fanoutOn("U")},
	"S-x":     {directOn("T", "x")},
	"S-both":  {fanoutOn("T"), directOn("T", "x"), directOn("U", "y")},
	"S-twice": {directOn("T", "x"), directOn("T", "z"), directOn("U", "z")},
}

func owes(group, sent string) bool {
	for _, b := range bound[group] {
		if b.Kind == wire.Fanout && sent[:1] == b.Topic || b.Kind == wire.Direct && sent == b.Topic+"/"+b.Expr {
			return true
		}
	}
	return false
}

// Law 5: every message reaches each group it is owed to at least once and no other, whatever machines, the process and the
// clock do; after an acknowledgement was kept, never again. What was acknowledged within the flush before a kill may come
// again, nothing else.
func TestLaw5EveryTargetOnceAtLeastUnderRandomFaults(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if s := os.Getenv("NOTIFY_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{n}
	} else {
		n, _ := strconv.Atoi(os.Getenv("NOTIFY_SEEDS")) // more, for a long run
		for range max(n, 1) {
			seeds = append(seeds, rand.Uint64()>>32)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, func(o *Options) {
				o.Delivery.DetachBacklog = 20
				o.Delivery.LateKeep = 10_000 * time.Hour // so that every late acknowledgement counts
			})
			c := meta.DefaultTopic("U") // T is made by the first subscription, without a durability of its own
			c.Attributes = map[string]string{meta.DurabilityAttribute: meta.Sync.String()}
			if err := w.st.Topics().Put(c); err != nil {
				t.Fatal(err)
			}
			randomRun(w, 250)
		})
	}
}

func randomRun(w *world, steps int) {
	names := []string{"S-all", "S-both", "S-twice", "S-x"}
	for _, g := range names {
		w.join(g, bound[g]...)
	}
	statuses := []wire.Status{
		wire.NoError, wire.NoError, wire.NoError, wire.NoError, wire.NoError, wire.NoError, wire.NoError,
		wire.StatusError, wire.StatusFailed, wire.StatusBusy, wire.StatusUnknown, 99,
	}
	for range steps {
		switch n := w.rng.IntN(100); {
		case n < 30:
			types := make([]string, 1+w.rng.IntN(8))
			for i := range types {
				types[i] = []string{"x", "y", "z"}[w.rng.IntN(3)]
			}
			w.send([]string{"T", "U"}[w.rng.IntN(2)], types...)
		case n < 75:
			if len(w.members) == 0 {
				continue
			}
			m := w.members[w.rng.IntN(len(w.members))]
			for range 1 + w.rng.IntN(10) {
				if k := w.waiting(m); k > 0 {
					w.answer(m, w.rng.IntN(k), statuses[w.rng.IntN(len(statuses))])
				}
			}
		case n < 82:
			m := w.join(names[w.rng.IntN(len(names))])
			m.takes(w.rng.IntN(3) * 4)
		case n < 88:
			if len(w.members) > 0 {
				w.members[w.rng.IntN(len(w.members))].leave()
			}
		case n < 94:
			w.advance(time.Duration(w.rng.IntN(6000)) * time.Millisecond)
		case n < 96:
			w.advance(time.Duration(w.rng.IntN(400)) * time.Second)
		case n < 98:
			w.quiet()
		case n < 99:
			w.kill(w.rng.IntN(2) == 0)
		default:
			w.restart()
		}
		if w.t.Failed() {
			return
		}
	}
	// Everything heals: one good machine a group, and time.
	for _, m := range append([]*member(nil), w.members...) {
		m.leave()
	}
	for _, g := range names {
		w.join(g)
	}
	var lost key
	missing := func() (n int, one string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for id, sent := range w.sent {
			for _, g := range names {
				if h := w.got[key{g, id}]; owes(g, sent) && (h == nil || !h.acked) {
					n++
					lost = key{g, id}
					one = fmt.Sprintf("message %d at %d (%s) for %s, seen %+v", id, w.addr[id], sent, g, h)
				}
			}
		}
		return n, one
	}
	end := time.Now().Add(30 * time.Second)
	for {
		w.ackAll()
		n, one := missing()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d shares were never delivered, such as %s\n%s\n%s", n, one, w.describe(), w.story(lost.group, w.addr[lost.id]))
		}
		w.advance(30 * time.Second)
		time.Sleep(2 * time.Millisecond)
	}
	// Nothing is left open, and nothing comes any more.
	for i := 0; ; i++ {
		w.ackAll()
		w.settle()
		s := w.st.StateStats()
		if s.Window == 0 && s.Retries == 0 {
			break
		}
		if time.Now().After(end) {
			w.t.Fatalf("everything is acknowledged, and the state still holds %+v\n%s", s, w.describe())
		}
		w.advance(time.Hour)
		time.Sleep(2 * time.Millisecond)
	}
	w.mu.Lock()
	for k := range w.got {
		if !owes(k.group, w.sent[k.id]) {
			w.t.Errorf("group %s got message %d (%s), which it is not bound to", k.group, k.id, w.sent[k.id])
		}
	}
	w.mu.Unlock()
	w.check()
}
