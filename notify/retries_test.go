package notify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// What an overflow has left to the retry line stands in front of it. Retries that become due take turns with it all the same.
func TestDueRetriesTakeTurnsWithWhatAnOverflowHasLeft(t *testing.T) {
	const backlog, failed = 2000, 10
	w := newWorld(t, 24, func(o *Options) { o.Delivery.DetachBacklog = backlog })
	a := w.join("S-a", fanoutOn("T"))
	a.takes(failed)
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	early := w.send("T", strings.Fields(strings.Repeat("x ", failed))...)
	w.until("deliveries", func() bool { return w.waiting(a) == failed })
	a.takes(1)
	for range failed {
		w.answer(a, 0, wire.StatusError)
	}
	w.until("the failed in the line", func() bool { return w.st.RetryCount("S-a") == failed })
	w.send("T", strings.Fields(strings.Repeat("x ", backlog+1))...)
	w.until("overflow", func() bool { return w.st.RetryCount("S-a") > backlog })
	w.quiet()
	w.advance(11 * time.Second)
	w.quiet()
	var order []uint64
	for range 3 * failed {
		w.until("the next", func() bool { return w.waiting(a) > 0 })
		order = append(order, w.ids(a)[0])
		w.answer(a, 0, wire.NoError)
	}
	retries, others := 0, 0
	for _, id := range order {
		if slices.Contains(early, id) {
			retries++
		} else {
			others++
		}
	}
	if retries != failed || others != 2*failed {
		t.Errorf("of the first %d deliveries %d are retries that were due and %d the rest, want %d and %d: %v", len(order), retries, others, failed, 2*failed, order)
	}
	w.check()
}
