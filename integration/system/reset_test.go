package system

import (
	"fmt"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// A group of the published client is sent back while it is there and while it is not, and goes on from there.
func TestOffsetResetOnlineAndOffline(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Reset"), rmq.Unique("g")
	createTopic(t, s, topic, 2)
	send := newProducer(t, s)
	const messages = 20
	for i := range messages {
		send(message(topic, "", fmt.Sprint(i)))
	}
	reset := func(kv ...string) {
		t.Helper()
		a, err := dial(t, s, "broker").Do(raw.CodeResetOffset, nil, append([]string{"topic", topic, "group", group, "isForce", "true"}, kv...)...)
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	times := func(l *rmq.Log, n int) {
		t.Helper()
		for end := time.Now().Add(2 * within); ; time.Sleep(50 * time.Millisecond) {
			missing := 0
			for i := range messages {
				if len(l.Get(fmt.Sprint(i))) < n {
					missing++
				}
			}
			if missing == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d messages did not come %d times", missing, messages, n)
			}
		}
	}
	var l rmq.Log
	stop := consume(t, s, group, topic, "*", &l)
	times(&l, 1)
	waitCommitted(t, s, group, topic, 2, messages)
	reset("timestamp", "0")
	times(&l, 2)
	waitCommitted(t, s, group, topic, 2, messages)
	stop()
	for q := range 2 {
		reset("timestamp", "0", "queueId", fmt.Sprint(q), "offset", "0")
	}
	waitCommitted(t, s, group, topic, 2, 0)
	var again rmq.Log
	consume(t, s, group, topic, "*", &again)
	times(&again, 1)
}
