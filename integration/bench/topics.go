package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

// topicsBudgets measures what a message costs the broker when many topics are written in turn, against one topic. Each number of topics has
// a broker of its own.
func (b *bench) topicsBudgets() error {
	counts := []int{1, 1000, 10_000}
	sides := make([]side, len(counts))
	for i, n := range counts {
		s, t, err := b.startServer(fmt.Sprint("topics-", n))
		if err != nil {
			return err
		}
		defer discard(s)
		names, err := t.newTopics(n)
		if err != nil {
			return fmt.Errorf("%d topics: %w", n, err)
		}
		sides[i] = side{fmt.Sprintf("topics: %d", n), t, sending(t, names, 1)}
	}
	c, err := b.alternate(sides)
	if err != nil {
		return err
	}
	for i, most := range []float64{1.05, 1.1} {
		b.table.atMost(fmt.Sprintf("CPU a message with %d topics written in turn, 1 KiB, 256 in flight, against 1 topic", counts[i+1]), c[i+1].cpu, c[0].cpu, most, "us")
	}
	return nil
}

// newTopics makes n topics of one queue each, many at a time: the broker joins what is made together into one durable write.
func (t *target) newTopics(n int) ([]string, error) {
	const together = 64 // connections
	base, err := t.newTopic(1)
	if err != nil {
		return nil, err
	}
	names := make([]string, n)
	names[0] = base
	for i := 1; i < n; i++ {
		names[i] = fmt.Sprintf("%s-%d", base, i)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, together)
	for k := range together {
		wg.Go(func() {
			c, err := raw.Dial(t.broker) // one connection's requests of this kind are answered one after the other
			if err != nil {
				errs[k] = err
				return
			}
			defer c.Close()
			for i := next.Add(1); i < int64(n) && errs[k] == nil; i = next.Add(1) {
				errs[k] = raw.CreateTopic(c, names[i], 1)
			}
		})
	}
	wg.Wait()
	return names, errors.Join(errs...)
}
