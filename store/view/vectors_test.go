package view_test

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/view"
)

// records reads all records of a directory that a real broker wrote, by topic, in the order of the log.
func records(t testing.TB, name string) map[string][]record.View {
	t.Helper()
	files, want, err := vectors.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	rs := map[string][]record.View{}
	for i := range want.Segments {
		b := files["commitlog/"+want.Segments[i].File]
		for len(b) > 0 {
			v, err := record.Parse(b)
			if err != nil {
				break
			}
			rs[string(v.Topic())] = append(rs[string(v.Topic())], v)
			b = b[v.Size():]
		}
	}
	return rs
}

func properties(v record.View) map[string]string {
	m := map[string]string{}
	for n, value := range record.Properties(v.Properties()) {
		m[string(n)] = string(value)
	}
	return m
}

// last finds the newest record with these keys.
func last(t *testing.T, rs []record.View, keys string) record.View {
	t.Helper()
	for _, v := range slices.Backward(rs) {
		if k, _ := v.Property("KEYS"); string(k) == keys {
			return v
		}
	}
	t.Fatalf("no record has keys %s", keys)
	return record.View{}
}

// show is the view that puts body where the real broker has put its copy.
func show(kind view.Kind, body, copied record.View) *view.Show {
	return &view.Show{
		Kind: kind, Topic: string(copied.Topic()), Queue: copied.QueueID(), QueueOffset: copied.QueueOffset(), Address: copied.PhysicalOffset(),
		Time: copied.StoreTime(), Origin: body.PhysicalOffset(), MessageTopic: string(body.Topic()), Reconsume: copied.ReconsumeTimes(),
	}
}

// What a real broker stores a second time when it commits a transaction or a delay is over is, byte for byte, what a view of the first
// record shows.
func TestLaw2CommitsAndDelaysReadAsRealBrokersStoreThem(t *testing.T) {
	for _, name := range []string{"5.3.3-stopped", "4.9.7-stopped", "5.3.3-killed", "4.9.7-killed"} {
		t.Run(name, func(t *testing.T) {
			rs := records(t, name)
			for keys, c := range map[string]struct {
				kind     view.Kind
				from, to string
			}{
				"tx0": {view.Commit, "RMQ_SYS_TRANS_HALF_TOPIC", "VecSTx"}, "tx2": {view.Commit, "RMQ_SYS_TRANS_HALF_TOPIC", "VecSTx"},
				"delay0": {view.Delay, "SCHEDULE_TOPIC_XXXX", "VecSDelay"}, "delay1": {view.Delay, "SCHEDULE_TOPIC_XXXX", "VecSDelay"},
				"delay2": {view.Delay, "SCHEDULE_TOPIC_XXXX", "VecSDelay"},
			} {
				body, copied := last(t, rs[c.from], keys), last(t, rs[c.to], keys)
				got := view.Append(nil, body, show(c.kind, body, copied))
				if !bytes.Equal(got, copied.Bytes()) {
					t.Errorf("%s:\n%q, want\n%q", keys, got, copied.Bytes())
				}
			}
		})
	}
}

// compare checks a view against the copy of a real broker: the properties as a map, since their order has no meaning and is that of a
// hash table there, and everything else byte for byte.
func compare(t *testing.T, what string, body, copied record.View, s *view.Show, free ...string) {
	t.Helper()
	v, err := record.Parse(view.Append(nil, body, s))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got, want := properties(v), properties(copied)
	for _, name := range free {
		if got[name] == "" || want[name] == "" {
			t.Errorf("%s: %s is %q, the real broker has %q", what, name, got[name], want[name])
		}
		delete(got, name)
		delete(want, name)
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s: properties (-real +view):\n%s", what, d)
	}
	none := func(v record.View) []byte {
		return v.AppendPatched(nil, &record.Patch{
			Topic: string(v.Topic()), QueueID: v.QueueID(), QueueOffset: v.QueueOffset(), PhysicalOffset: v.PhysicalOffset(), SysFlag: v.SysFlag(),
			StoreTime: v.StoreTime(), ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(), Properties: []byte{},
		})
	}
	if !bytes.Equal(none(v), none(copied)) {
		t.Errorf("%s without properties:\n%q, want\n%q", what, none(v), none(copied))
	}
}

func TestLaw2RetriesAndDeadLettersReadAsRealBrokersStoreThem(t *testing.T) {
	for _, name := range []string{"5.3.3-stopped", "4.9.7-stopped"} {
		t.Run(name, func(t *testing.T) {
			rs := records(t, name)
			body, copied := last(t, rs["VecSRetry"], "r1s"), last(t, rs["%RETRY%GID_store_retry"], "r1s")
			s := show(view.Retry, body, copied)
			s.Level = 1
			compare(t, "retry", body, copied, s)
			body, copied = last(t, rs["VecSRetry"], "dlq"), last(t, rs["%DLQ%GID_store_retry"], "dlq")
			compare(t, "dead letter", body, copied, show(view.Dead, body, copied))
			if strings.HasPrefix(name, "5") {
				body, copied = last(t, rs["rmq_sys_wheel_timer"], "timer0"), last(t, rs["VecSTimer"], "timer0")
				compare(t, "timer", body, copied, show(view.Timer, body, copied), "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")
			}
		})
	}
}

// The real broker gives its own address as that of the producer: a view changes no host.
func TestLaw2WhatComesAgainAfterAPopReadsAsARealBrokerStoresIt(t *testing.T) {
	rs := records(t, "5.3.3-pop-stopped")
	for _, keys := range []string{"k0", "k1"} {
		body, copied := last(t, rs["PopT"], keys), last(t, rs["%RETRY%G_PopT"], keys)
		const bornHost = 48
		copy(copied.Bytes()[bornHost:bornHost+8], body.Bytes()[bornHost:])
		s := show(view.Revive, body, copied)
		first, _ := copied.Property(view.PropFirstPop)
		var err error
		if s.PopTime, err = strconv.ParseInt(string(first), 10, 64); err != nil {
			t.Fatal(err)
		}
		compare(t, keys, body, copied, s)
		s.PopTime, s.Reconsume = 5, 2
		again, err := record.Parse(view.Append(nil, copied, s))
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := again.Property(view.PropFirstPop); !bytes.Equal(p, first) {
			t.Errorf("%s given once more was first given at %s, want %s", keys, p, first)
		}
	}
}

// A view of a view's own bytes is the same again: what was moved keeps its changes.
func TestViewsOfMovedViewsAreTheSame(t *testing.T) {
	rs := records(t, "5.3.3-stopped")
	for kind, body := range map[view.Kind]record.View{
		view.Commit: last(t, rs["RMQ_SYS_TRANS_HALF_TOPIC"], "tx0"), view.Delay: last(t, rs["SCHEDULE_TOPIC_XXXX"], "delay0"),
		view.Timer: last(t, rs["rmq_sys_wheel_timer"], "timer0"), view.Retry: last(t, rs["VecSRetry"], "r1s"),
		view.Dead: last(t, rs["VecSRetry"], "dlq"), view.Aside: last(t, rs["RMQ_SYS_TRANS_HALF_TOPIC"], "tx3"),
	} {
		s := &view.Show{Kind: kind, Topic: "T", Queue: 3, QueueOffset: 9, Address: 1 << 40, Time: 1 << 41, Origin: 77, MessageTopic: "O", Reconsume: 5, Level: 2}
		once := view.Append(nil, body, s)
		v, err := record.Parse(once)
		if err != nil {
			t.Fatal(err)
		}
		if v.CheckBody() != nil || v.PhysicalOffset() != 1<<40 || !bytes.Equal(v.Body(), body.Body()) {
			t.Errorf("kind %d: %v", kind, v)
		}
		again, err := record.Parse(view.Append(nil, v, s))
		if err != nil || !maps.Equal(properties(v), properties(again)) {
			t.Errorf("kind %d: %v, then %v, %v", kind, properties(v), properties(again), err)
		}
	}
}

// Properties that the additions would make too long for a record stay as they are.
func TestViewsOfFullPropertiesFit(t *testing.T) {
	props := record.AppendProperty(nil, "x", strings.Repeat("y", record.MaxPropertiesBytes-4))
	body := []byte("body")
	raw := record.Append(nil, &record.Fields{Topic: "T", Body: body, BodyCRC: record.CRC(body), Properties: props})
	v, err := record.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for kind := view.Kind(0); kind < 9; kind++ { // those that do not exist, too
		got, err := record.Parse(view.Append(nil, v, &view.Show{Kind: kind, Topic: strings.Repeat("t", 200), MessageTopic: "T"}))
		if err != nil || len(got.Properties()) > record.MaxPropertiesBytes || len(got.Topic()) != 200 {
			t.Errorf("kind %d: %d bytes of properties, %v", kind, len(got.Properties()), err)
		}
	}
}
