package system

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/push"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

// inbox collects what a push group gets.
type inbox struct {
	mu    sync.Mutex
	got   []*notify.Message
	moved chan struct{}
	fail  func(*notify.Message) error // nil: everything is acknowledged
}

func (b *inbox) handle(_ context.Context, m *notify.Message) error {
	b.mu.Lock()
	b.got = append(b.got, m)
	if b.moved != nil {
		close(b.moved)
		b.moved = nil
	}
	fail := b.fail
	b.mu.Unlock()
	if fail != nil {
		return fail(m)
	}
	return nil
}

// wait returns what has come once at least n have.
func (b *inbox) wait(t *testing.T, n int) []*notify.Message {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		b.mu.Lock()
		got := append([]*notify.Message(nil), b.got...)
		if b.moved == nil {
			b.moved = make(chan struct{})
		}
		moved := b.moved
		b.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-moved:
		case <-timer.C:
			t.Fatalf("%d of %d pushes after %s", len(got), n, within)
		}
	}
}

func (b *inbox) bodies() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := map[string]int{}
	for _, g := range b.got {
		m[string(g.Body)]++
	}
	return m
}

// subscribe connects a member of group with bindings; close may be called before the test ends.
func subscribe(t *testing.T, s *proc.Server, group string, b *inbox, bindings []notify.Binding, options ...notify.Option) (stop func()) {
	t.Helper()
	sub, err := notify.NewSubscriber(group, []string{s.Addr["notify"]}, b.handle, options...)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := sub.Close(ctx); err != nil {
			t.Errorf("close of %s: %v", group, err)
		}
	})
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := sub.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := sub.Subscribe(ctx, bindings...); err != nil {
		t.Fatal(err)
	}
	return stop
}

func publisher(t *testing.T, s *proc.Server, compressFrom int) func(*notify.Message) notify.Receipt {
	t.Helper()
	p, err := push.Publisher(s.Addr["notify"], rmq.Unique("P"), compressFrom)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { push.ClosePublisher(p) })
	return func(m *notify.Message) notify.Receipt {
		t.Helper()
		r, err := p.Send(t.Context(), m)
		if err != nil {
			t.Fatalf("publish to %s: %v", m.Topic, err)
		}
		return r
	}
}

// both are the two bodies of every test of compression: one that stays as it is and one that the producer compresses.
var both = map[bool][]byte{false: []byte("small"), true: bytes.Repeat([]byte("compressible "), 2000)}

func TestRocketMQMessagesArePushedAsTheyWere(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("R2N")
	createTopic(t, s, topic, 4)
	var whole, rawBodies inbox
	subscribe(t, s, rmq.Unique("S"), &whole, []notify.Binding{notify.Fanout(topic)})
	subscribe(t, s, rmq.Unique("S-raw"), &rawBodies, []notify.Binding{notify.Fanout(topic)}, notify.WithRawBodies())
	send := newProducer(t, s, producer.WithCompressMsgBodyOverHowmuch(1024))
	ids := map[string]bool{}
	for compressed, body := range both {
		m := primitive.NewMessage(topic, body).WithTag("paid")
		m.WithKeys([]string{"order-1"})
		m.WithProperty("colour", "green")
		ids[strings.ToLower(send(m).MsgID)] = compressed
	}
	for _, m := range whole.wait(t, 2) {
		compressed, known := ids[m.ID.String()]
		colour, _ := m.Header.Value("colour")
		keys, _ := m.Header.Value(wire.KeyKeys)
		if !known || m.Topic != topic || m.Type != "paid" || colour != "green" || keys != "order-1" || !bytes.Equal(m.Body, both[compressed]) {
			t.Errorf("pushed %s type %q colour %q keys %q, %d bytes", m.ID, m.Type, colour, keys, len(m.Body))
		}
		if m.Delivery.Compressed != compressed || m.Delivery.Attempt != 1 {
			t.Errorf("compressed %v attempt %d, want %v and 1", m.Delivery.Compressed, m.Delivery.Attempt, compressed)
		}
	}
	// Law 3: without decompression it is the producer's own zlib stream.
	for _, m := range rawBodies.wait(t, 2) {
		if !m.Delivery.Compressed {
			continue
		}
		r, err := zlib.NewReader(bytes.NewReader(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, both[true]) {
			t.Errorf("the pushed stream gives %d bytes, %v", len(b), err)
		}
	}
}

func TestNotifyMessagesArePulledAsTheyWere(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("N2R")
	createTopic(t, s, topic, 4)
	publish := publisher(t, s, 1024)
	ids := map[string]bool{}
	for compressed, body := range both {
		m := &notify.Message{Topic: topic, Type: "paid", Body: body}
		m.Header.Set("colour", "green")
		m.Header.Set("DELAY", "3") // RocketMQ's name for a delay must stay the user's header
		r := publish(m)
		if r.Durability != notify.DurabilityAsync {
			t.Errorf("durability %v, want async", r.Durability)
		}
		ids[r.ID.String()] = compressed
	}
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "paid", &l)
	if err := l.Wait(2, within); err != nil {
		t.Fatal(err)
	}
	for compressed, body := range both {
		got := l.Get(string(body))
		if len(got) != 1 {
			t.Fatalf("the body of %d bytes came %d times", len(body), len(got))
		}
		m := got[0]
		if was, known := ids[strings.ToLower(m.MsgId)]; !known || was != compressed || m.GetTags() != "paid" || m.GetProperty("colour") != "green" {
			t.Errorf("pulled %s tags %q colour %q", m.MsgId, m.GetTags(), m.GetProperty("colour"))
		}
		if m.GetProperty("DELAY") != "" || m.GetProperty("__h.DELAY") != "3" {
			t.Errorf("the header DELAY is %q, under __h. %q: it must travel escaped", m.GetProperty("DELAY"), m.GetProperty("__h.DELAY"))
		}
		if isCompressed := m.SysFlag&1 != 0; isCompressed != compressed {
			t.Errorf("sysFlag %d of a body of %d bytes", m.SysFlag, len(body))
		}
	}
}

func TestOnlyTheGroupThatFailedIsPushedAgain(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Fail")
	createTopic(t, s, topic, 1)
	var good, bad inbox
	bad.fail = func(m *notify.Message) error {
		if m.Delivery.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}
	subscribe(t, s, rmq.Unique("S-good"), &good, []notify.Binding{notify.Direct(topic, "a")})
	subscribe(t, s, rmq.Unique("S-bad"), &bad, []notify.Binding{notify.Direct(topic, "a")})
	publish := publisher(t, s, 0)
	publish(&notify.Message{Topic: topic, Type: "a", Body: []byte("one")})
	publish(&notify.Message{Topic: topic, Type: "b", Body: []byte("for nobody")})
	got := bad.wait(t, 2)
	if got[1].Delivery.Attempt != 2 || got[0].ID != got[1].ID || string(got[1].Body) != "one" {
		t.Errorf("second push: attempt %d of %s %q, want attempt 2 of %s", got[1].Delivery.Attempt, got[1].ID, got[1].Body, got[0].ID)
	}
	if n := good.bodies(); len(n) != 1 || n["one"] != 1 {
		t.Errorf("the group that acknowledged got %v", n)
	}
	if n := bad.bodies(); n["for nobody"] != 0 {
		t.Errorf("a message of type b came through a binding to a: %v", n)
	}
}

// detached waits until a push group reads through its cursors.
func detached(t *testing.T, s *proc.Server, group string) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		var g struct {
			Topics []struct{ Attached bool }
		}
		code, body := get(t, s, "/api/v1/groups/"+group)
		if err := json.Unmarshal([]byte(body), &g); err != nil || code != http.StatusOK {
			t.Fatalf("group %s: %d %v %s", group, code, err, body)
		}
		if !slices.ContainsFunc(g.Topics, func(topic struct{ Attached bool }) bool { return topic.Attached }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("group %s is still attached: %s", group, body)
		}
	}
}

func TestAnOfflineGroupCatchesUpOldestFirst(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Off"), rmq.Unique("S")
	createTopic(t, s, topic, 1)
	var before inbox
	stop := subscribe(t, s, group, &before, []notify.Binding{notify.Fanout(topic)})
	send := newProducer(t, s)
	send(message(topic, "", "online"))
	before.wait(t, 1)
	stop()
	detached(t, s, group) // else the first ones may be on their way to a connection that is not known to have ended
	const n = 500
	for i := range n {
		send(message(topic, "", fmt.Sprintf("offline %03d", i)))
	}
	var after inbox
	subscribe(t, s, group, &after, []notify.Binding{notify.Fanout(topic)}, notify.WithWorkers(1))
	got := after.wait(t, n)
	for i := range n {
		if want := fmt.Sprintf("offline %03d", i); string(got[i].Body) != want {
			t.Fatalf("push %d is %q, want %q", i, got[i].Body, want)
		}
	}
	send(message(topic, "", "online again"))
	got = after.wait(t, n+1)
	if string(got[n].Body) != "online again" || len(got) != n+1 {
		t.Errorf("after catching up: %q, %d pushes", got[n].Body, len(got))
	}
}

func TestAPushGroupIsKeptOverARestart(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	topic, group := rmq.Unique("Sub"), rmq.Unique("S")
	createTopic(t, s, topic, 2)
	var b inbox
	stop := subscribe(t, s, group, &b, []notify.Binding{notify.Fanout(topic)})
	publisher(t, s, 0)(&notify.Message{Topic: topic, Type: "t", Body: []byte("first")})
	b.wait(t, 1)
	stop()
	publisher(t, s, 0)(&notify.Message{Topic: topic, Type: "t", Body: []byte("while away")})
	if code, took, err := s.Stop(10 * time.Second); code != 0 || err != nil {
		t.Fatalf("stop: exit %d after %s, %v\n%s", code, took, err, s.Output())
	}
	s = start(t, dir)
	publisher(t, s, 0)(&notify.Message{Topic: topic, Type: "t", Body: []byte("after")})
	var again inbox
	sub, err := notify.NewSubscriber(group, []string{s.Addr["notify"]}, again.handle) // its bindings are the server's
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close(context.Background()) }()
	again.wait(t, 2)
	if n := again.bodies(); n["while away"] != 1 || n["after"] != 1 || n["first"] != 0 {
		t.Errorf("after the restart: %v", n)
	}
}

func TestWhatTheNotifyFaceRefusesStoresNothing(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	topic := rmq.Unique("Ref")
	createTopic(t, s, topic, 1)
	p, err := push.Publisher(s.Addr["notify"], rmq.Unique("P"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer push.ClosePublisher(p)
	before := logEnd(t, s)
	for _, tc := range []struct {
		name string
		give *notify.Message
		set  [2]string
	}{
		{"no body", &notify.Message{Topic: topic, Type: "t"}, [2]string{}},
		{"a type with a bar", &notify.Message{Topic: topic, Type: "a|b", Body: []byte("x")}, [2]string{}},
		{"a topic with a blank", &notify.Message{Topic: "a b", Type: "t", Body: []byte("x")}, [2]string{}},
		{"a header with 0x01", &notify.Message{Topic: topic, Type: "t", Body: []byte("x")}, [2]string{"k", "a\x01b"}},
		{"a header over 16 KiB", &notify.Message{Topic: topic, Type: "t", Body: []byte("x")}, [2]string{"k", strings.Repeat("v", 17000)}},
		{"a header of the system", &notify.Message{Topic: topic, Type: "t", Body: []byte("x")}, [2]string{"__secret", "v"}},
		{"a body over 4 MiB", &notify.Message{Topic: topic, Type: "t", Body: make([]byte, 4<<20+1)}, [2]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.set[0] != "" {
				tc.give.Header.Set(tc.set[0], tc.set[1])
			}
			if _, err := p.Send(t.Context(), tc.give); !errors.Is(err, notify.CodeFormat) {
				t.Errorf("%v, want FORMAT_ERROR before sending", err)
			}
		})
	}
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
	if _, err := p.Send(t.Context(), &notify.Message{Topic: topic, Type: "t", Body: []byte("good")}); err != nil {
		t.Errorf("a good message on the same connection: %v", err)
	}
}
