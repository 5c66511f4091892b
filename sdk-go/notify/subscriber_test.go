package notify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/fusionmq/fusionmq/notify/wire"
)

func subscriber(t *testing.T, fakes map[string]*fake, h Handler, opts ...Option) *Subscriber {
	t.Helper()
	servers := make([]string, 0, len(fakes))
	for s := range fakes {
		servers = append(servers, s)
	}
	slices.Sort(servers)
	s, err := NewSubscriber("S-ump", servers, h, append([]Option{dialer(fakes)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSubscriberHandlesABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		var mu sync.Mutex
		got := map[string]*Message{}
		s := subscriber(t, map[string]*fake{addrA: f}, func(_ context.Context, m *Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[m.ID.String()[30:]] = m
			switch m.ID[15] {
			case 3:
				return errors.New("no stock")
			case 5:
				panic("handler is broken")
			}
			return nil
		}, WithWindow(50, 1<<20))
		defer closeNow(t, s)
		if err := s.Subscribe(t.Context(), Direct("TRADE", "created", WithWatermark(40000)), Fanout("ORDER", Volatile())); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the credit comes last
		want := []string{
			`{"kind":"direct","topic":"TRADE","expr":"created","group":"S-ump","waterMark":40000,"persistent":true}`,
			`{"kind":"fanout","topic":"ORDER","group":"S-ump","waterMark":-1,"persistent":false}`,
		}
		if !slices.Equal(f.bindings, want) {
			t.Errorf("bindings %q", f.bindings)
		}
		if len(f.credits) != 1 || string(f.credits[0].Group) != "S-ump" || f.credits[0].Messages != 50 || f.credits[0].Bytes != 1<<20 {
			t.Errorf("credits %+v", f.credits)
		}
		var hs []*wire.MessageHeader
		for n := range byte(8) {
			hs = append(hs, pushed(n, "S-ump", func(h *wire.MessageHeader) {
				h.Flag = int32(KindString) | wire.FlagSendOnce
				h.TTL, h.Set = 60, h.Set.With(wire.FieldTTL)
				h.Properties = []wire.Property{
					{Key: []byte("seller"), Value: []byte("41"), HasValue: true}, {Key: []byte("seller"), Value: []byte("42"), HasValue: true},
					{Key: []byte("gone"), Value: []byte("1"), HasValue: true}, {Key: []byte("gone")},
					{Key: []byte("__t.seller"), Value: []byte("I"), HasValue: true}, {Key: []byte("__keys"), Value: []byte("a b"), HasValue: true},
				}
			}))
		}
		f.conn(t).batch(hs, []byte("hello"))
		synctest.Wait()
		if len(got) != 8 {
			t.Fatalf("handled %d messages", len(got))
		}
		m := got["01"]
		if m.Topic != "TRADE" || m.Type != "created" || m.Group != "P-trade" || string(m.Body) != "hello" || m.Kind != KindString || !m.AtMostOnce || m.TTL != time.Minute {
			t.Errorf("message %+v", m)
		}
		if m.Delivery != (Delivery{Attempt: 1, Group: "S-ump", Created: time.UnixMilli(1511337600001), Server: addrA}) || !m.Born.Equal(time.UnixMilli(1511337600000)) {
			t.Errorf("delivery %+v, born %v", m.Delivery, m.Born)
		}
		if n, ok := m.Header.Int("seller"); n != 42 || !ok {
			t.Errorf("seller = %d, %v", n, ok)
		}
		if typ, _ := m.Header.TypeOf("seller"); typ != 'I' {
			t.Errorf("type of seller %c", typ)
		}
		if keys, _ := m.Header.Value("__keys"); keys != "a b" || m.Header.Len() != 2 {
			t.Errorf("header %+v", m.Header)
		}
		ok, failed := 0, map[uint64]string{}
		for _, r := range f.acks {
			if r.Status == wire.NoError {
				ok += int(r.Last - r.First + 1)
				continue
			}
			failed[r.First] = r.Status.String() + " " + string(r.Text)
		}
		if ok != 6 || len(failed) != 2 || failed[4] != "EXCEPTION no stock" || failed[6] != "EXCEPTION handler panicked: handler is broken" {
			t.Errorf("acks: %d good, failed %v", ok, failed)
		}
	})
}

func TestSubscriberSpeaksPlainNotifyV1(t *testing.T) {
	for _, plain := range []bool{false, true} { // the server knows no more, or the client offers no more
		synctest.Test(t, func(t *testing.T) {
			f := newFake(wire.AllFeatures)
			opts := []Option{WithPlainProtocol()}
			if !plain {
				f, opts = newFake(0), nil
			}
			s := subscriber(t, map[string]*fake{addrA: f}, func(_ context.Context, m *Message) error {
				if m.ID[15] == 2 {
					return errors.New("no stock")
				}
				return nil
			}, opts...)
			defer closeNow(t, s)
			if err := s.Subscribe(t.Context(), Fanout("TRADE")); err != nil {
				t.Fatal(err)
			}
			c := f.conn(t)
			c.deliver(pushed(1, "S-ump", nil), 71, []byte("x"))
			synctest.Wait()
			c.deliver(pushed(2, "S-ump", nil), 72, []byte("x"))
			synctest.Wait()
			c.deliver(pushed(3, "S-other", nil), 73, []byte("x"))
			synctest.Wait()
			c.put(wire.AppendRequest(nil, wire.OpCheck, 74, nil, nil))
			c.put(wire.AppendRequest(nil, 0x55, 75, nil, nil))
			c.put(wire.AppendRequest(nil, wire.OpHeartbeat, 76, nil, nil))
			c.put(wire.AppendRequest(nil, wire.OpDummy, 77, []byte("ping"), nil))
			c.put(wire.AppendRequest(nil, wire.OpDeliver, 78, []byte("\xff"), nil))
			synctest.Wait()
			want := []reply1{
				{op: wire.OpDeliver, opaque: 71, id: string(pushed(1, "", nil).ID)},
				{op: wire.OpDeliver, opaque: 72, status: wire.StatusFailed, text: "no stock"},
				{op: wire.OpDeliver, opaque: 73, status: wire.StatusUnknown, text: `no listener for group "S-other"`},
				{op: wire.OpCheck, opaque: 74, status: wire.StatusUnknown, text: "a subscriber has no transactions"},
				{op: 0x55, opaque: 75, status: wire.StatusNoOpcode},
				{op: wire.OpHeartbeat, opaque: 76},
				{op: wire.OpDummy, opaque: 77},
			}
			for i, w := range want {
				if i >= len(f.replies) || f.replies[i] != w {
					t.Fatalf("replies %+v, want %+v", f.replies, want)
				}
			}
			if last := f.replies[len(f.replies)-1]; last.opaque != 78 || last.status != wire.StatusError {
				t.Errorf("answer to a broken header %+v", last)
			}
			if len(f.credits) != 0 {
				t.Errorf("credits %+v without the feature", f.credits)
			}
			if err := s.Unsubscribe(t.Context(), Fanout("TRADE")); !errors.Is(err, CodeNoProcessor) {
				t.Errorf("Unsubscribe = %v", err)
			}
		})
	}
}

func TestSubscriberIsBusyWhenItsWindowIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		block := make(chan struct{})
		s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { <-block; return nil },
			WithWorkers(1), WithWindow(2, 1<<20))
		if err := s.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		for n := range byte(4) { // one in the handler, two wait
			f.conn(t).deliver(pushed(n, "S-ump", nil), uint32(n), []byte("x"))
			synctest.Wait()
		}
		if len(f.replies) != 1 || f.replies[0].opaque != 3 || f.replies[0].status != wire.StatusBusy {
			t.Errorf("replies %+v", f.replies)
		}
		close(block)
		synctest.Wait()
		if len(f.replies) != 4 {
			t.Errorf("replies %+v", f.replies)
		}
		closeNow(t, s)
	})
}

func TestSubscriberRegistersAgainAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
		defer closeNow(t, s)
		if err := s.Subscribe(t.Context(), Fanout("A"), Fanout("B")); err != nil {
			t.Fatal(err)
		}
		if err := s.Unsubscribe(t.Context(), Fanout("B")); err != nil {
			t.Fatal(err)
		}
		if len(f.removed) != 1 {
			t.Errorf("removed %q", f.removed)
		}
		synctest.Wait()
		start := time.Now()
		f.breakAll()
		f.until(t, "a second connection with its credit", func() bool { return f.all == 2 && len(f.credits) == 2 })
		if took := time.Since(start); took < 1700*time.Millisecond || took > 2300*time.Millisecond {
			t.Errorf("connected again after %v", took)
		}
		if want := f.bindings[0]; len(f.bindings) != 3 || f.bindings[2] != want {
			t.Errorf("bindings %q", f.bindings)
		}
		f.conn(t).batch([]*wire.MessageHeader{pushed(1, "S-ump", nil)}, nil)
		synctest.Wait()
		if len(f.acks) != 1 || f.acks[0].First != 1 {
			t.Errorf("acks %+v", f.acks)
		}
	})
}

func TestSubscribeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		var seen []string
		f.other = func(c *fakeConn, fr wire.Frame) bool {
			if fr.Opcode != wire.OpSubscribe {
				return false
			}
			seen = append(seen, string(fr.Header))
			if strings.Contains(string(fr.Header), "header") {
				c.answer(fr, wire.StatusError, "column 8: expected a literal")
				return true
			}
			return false
		}
		s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
		defer closeNow(t, s)
		err := s.Subscribe(t.Context(), Fanout("A"), Filter("A", "seller =="))
		if !errors.Is(err, CodeError) || !strings.Contains(err.Error(), "column 8") {
			t.Fatalf("Subscribe = %v", err)
		}
		synctest.Wait()
		f.breakAll()
		f.until(t, "another connection", func() bool { return f.all == 2 && len(f.credits) == 2 })
		if len(seen) != 3 {
			t.Errorf("registered again: %q", seen[2:])
		}
		for _, bad := range []Binding{Direct("A", ""), Direct("A", "a|b"), Pattern("A", ""), Fanout("%DLQ%x"), Fanout("A", WithWatermark(0))} {
			if err := s.Subscribe(t.Context(), bad); !errors.Is(err, CodeFormat) {
				t.Errorf("Subscribe(%v) = %v", bad, err)
			}
		}
	})
}

// A server under load answers a binding when it holds, and nothing else on the connection before.
func TestSubscribeWaitsAsLongAsTheServerMayTake(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration // 0: for ever
		conns int           // when it is over
		want  error
	}{
		{"the longest that it may", wire.BindTimeout, 1, nil},
		{"longer", 0, 1, CodeTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(wire.AllFeatures)
				s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
				defer closeNow(t, s)
				if err := s.WaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(9 * time.Second) // of silence: a heartbeat is near
				var waiting []func()        // what the server answers later
				f.mu.Lock()
				f.other = func(c *fakeConn, fr wire.Frame) bool {
					if fr.Opcode == wire.OpSubscribe && tc.takes > 0 {
						time.AfterFunc(tc.takes, func() {
							f.mu.Lock()
							defer f.mu.Unlock()
							for _, w := range append([]func(){func() { c.answer(fr, wire.NoError, "") }}, waiting...) {
								w()
							}
							f.other = nil
						})
						return true
					}
					waiting = append(waiting, func() { c.answer(fr, wire.NoError, "") })
					return true
				}
				f.mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := s.Subscribe(ctx, Fanout("A"))
				took := time.Since(start)
				if !errors.Is(err, tc.want) || took < wire.BindTimeout || took > wire.BindTimeout+1100*time.Millisecond {
					t.Errorf("Subscribe = %v after %v, want %v", err, took, tc.want)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.all != tc.conns {
					t.Errorf("%d connections, want %d", f.all, tc.conns)
				}
			})
		})
	}
}

func TestSubscribeReachesEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(wire.AllFeatures), newFake(0)
		s := subscriber(t, map[string]*fake{addrA: a, addrB: b}, func(context.Context, *Message) error { return nil })
		defer closeNow(t, s)
		synctest.Wait()
		if err := s.Subscribe(t.Context(), Fanout("A")); err != nil {
			t.Fatal(err)
		}
		if len(a.bindings) != 1 || len(b.bindings) != 1 {
			t.Errorf("bindings %q and %q", a.bindings, b.bindings)
		}
	})
}

func TestSubscribeWaitsForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		f.refuse = errors.New("refused")
		s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Subscribe(ctx, Fanout("A")); !errors.Is(err, CodeNoConnection) {
			t.Errorf("Subscribe = %v", err)
		}
		time.AfterFunc(5*time.Second, func() { f.mu.Lock(); f.refuse = nil; f.mu.Unlock() })
		if err := s.Subscribe(t.Context(), Fanout("B")); err != nil {
			t.Errorf("Subscribe = %v", err)
		}
		closeNow(t, s)
		if err := s.Subscribe(t.Context(), Fanout("C")); !errors.Is(err, ErrClosed) {
			t.Errorf("Subscribe on a closed subscriber = %v", err)
		}
		if err := s.WaitReady(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("WaitReady on a closed subscriber = %v", err)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
		if err := s.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := func() (beats, conns int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.beats, f.all
		}
		time.Sleep(9900 * time.Millisecond)
		if n, _ := seen(); n != 0 {
			t.Errorf("%d heartbeats before 10 s", n)
		}
		time.Sleep(60 * time.Second)
		if n, conns := seen(); n < 5 || n > 7 || conns != 1 {
			t.Errorf("%d heartbeats in 70 s, %d connections", n, conns)
		}
		lost := 0
		f.mu.Lock()
		f.other = func(_ *fakeConn, fr wire.Frame) bool {
			if fr.Opcode == wire.OpHeartbeat {
				lost++
			}
			return fr.Opcode == wire.OpHeartbeat
		}
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		_, conns := seen() // after it, lost may be read
		if lost != 3 || conns != 2 {
			t.Errorf("%d heartbeats lost, %d connections", lost, conns)
		}
		closeNow(t, s)
	})
}

// TestCloseWaitsForHandlers: what runs is acknowledged, what only waits is left to another machine.
func TestCloseWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		ended := 0
		s := subscriber(t, map[string]*fake{addrA: f}, func(ctx context.Context, _ *Message) error {
			time.Sleep(3 * time.Second)
			ended++
			return ctx.Err()
		}, WithWorkers(1))
		if err := s.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.conn(t).batch([]*wire.MessageHeader{pushed(1, "S-ump", nil), pushed(2, "S-ump", nil)}, []byte("x"))
		synctest.Wait()
		start := time.Now()
		closeNow(t, s)
		if time.Since(start) != 3*time.Second || ended != 1 {
			t.Errorf("Close took %v, %d handlers ended", time.Since(start), ended)
		}
		f.until(t, "the end of the connection", func() bool { return len(f.conns) == 0 })
		if len(f.acks) != 1 || f.acks[0].First != 1 || f.acks[0].Last != 1 || f.acks[0].Status != wire.NoError {
			t.Errorf("acks %+v", f.acks)
		}
		if last := f.credits[len(f.credits)-1]; last.Messages != 0 {
			t.Errorf("last credit %+v", last)
		}
	})
}

func TestCloseCancelsHandlersWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		s := subscriber(t, map[string]*fake{addrA: f}, func(ctx context.Context, _ *Message) error { <-ctx.Done(); return ctx.Err() })
		if err := s.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.conn(t).batch([]*wire.MessageHeader{pushed(1, "S-ump", nil)}, []byte("x"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v", err)
		}
		f.until(t, "the end of the connection", func() bool { return len(f.conns) == 0 })
		if len(f.acks) != 1 || f.acks[0].Status != wire.StatusFailed {
			t.Errorf("acks %+v", f.acks)
		}
	})
}

func TestBodiesAreDecompressed(t *testing.T) {
	plain := bytes.Repeat([]byte("0123456789"), 10_000)
	var z, l, s bytes.Buffer
	d := deflater{min: 1, level: 5}
	packed, _ := d.compress(&z, plain)
	lw := lz4.NewWriter(&l)
	_, err := lw.Write(plain)
	sw, err2 := zstd.NewWriter(&s)
	if err2 != nil {
		t.Fatal(err2)
	}
	_, err3 := sw.Write(plain)
	if err := errors.Join(err, err3, lw.Close(), sw.Close()); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, codec string
		give        []byte
		raw         bool
		max         int64
		want        []byte
		wantErr     string
	}{
		{"zlib", "", packed, false, 1 << 20, plain, ""},
		{"zlib by name", "zlib", packed, false, 1 << 20, plain, ""},
		{"lz4", "lz4", l.Bytes(), false, 1 << 20, plain, ""},
		{"zstd", "zstd", s.Bytes(), false, 1 << 20, plain, ""},
		{"raw", "zstd", s.Bytes(), true, 1 << 20, s.Bytes(), ""},
		{"exactly the limit", "", packed, false, 100_000, plain, ""},
		{"zlib bomb", "", packed, false, 99_999, nil, "too large"},
		{"lz4 bomb", "lz4", l.Bytes(), false, 99_999, nil, "too large"},
		{"zstd bomb", "zstd", s.Bytes(), false, 99_999, nil, "too large"},
		{"no zlib", "", []byte("hello"), false, 1 << 20, nil, "zlib"},
		{"cut zlib", "", packed[:len(packed)-5], false, 1 << 20, nil, "EOF"},
		{"no zstd", "zstd", []byte("hello"), false, 1 << 20, nil, "magic"},
		{"no lz4", "lz4", []byte("hello"), false, 1 << 20, nil, "magic"},
		{"unknown", "br", []byte("hello"), false, 1 << 20, nil, "unknown compression"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(wire.AllFeatures)
				opts := []Option{WithMaxBody(tc.max)}
				if tc.raw {
					opts = append(opts, WithRawBodies())
				}
				var got *Message
				s := subscriber(t, map[string]*fake{addrA: f}, func(_ context.Context, m *Message) error { got = m; return nil }, opts...)
				defer closeNow(t, s)
				synctest.Wait()
				for range 2 { // the second time with readers used before
					got = nil
					f.conn(t).batch([]*wire.MessageHeader{pushed(1, "S-ump", func(h *wire.MessageHeader) {
						h.Flag = wire.FlagCompressed
						if tc.codec != "" {
							h.Properties = []wire.Property{{Key: []byte("__ctype"), Value: []byte(tc.codec), HasValue: true}}
						}
					})}, tc.give)
					synctest.Wait()
					last := f.acks[len(f.acks)-1]
					if tc.wantErr != "" {
						if got != nil || last.Status != wire.StatusError || !strings.Contains(string(last.Text), tc.wantErr) {
							t.Fatalf("handled %v, ack %v %s", got != nil, last.Status, last.Text)
						}
						continue
					}
					if got == nil || !bytes.Equal(got.Body, tc.want) || !got.Delivery.Compressed || last.Status != wire.NoError {
						t.Fatalf("handled %v, ack %v %s", got != nil, last.Status, last.Text)
					}
					if _, has := got.Header.Value("__ctype"); has != tc.raw {
						t.Errorf("__ctype there: %v", has)
					}
				}
			})
		})
	}
}

// TestHostileServer: nothing that a server sends may stop the client for good.
func TestHostileServer(t *testing.T) {
	oversize := binary.BigEndian.AppendUint32([]byte{wire.MagicRequest, 1, 0, 0}, 1<<31-1)
	attacks := map[string][]byte{
		"foreign protocol":         []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"frame of 2 GiB":           append(oversize, 0, 0, 0, 9),
		"negative header":          {wire.MagicRequest, 1, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 9},
		"header longer than frame": {wire.MagicRequest, 1, 0, 9, 0, 0, 0, 1, 0, 0, 0, 9},
		"response of 2 GiB":        {wire.MagicResponse, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1},
	}
	for name, bytes := range attacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(wire.AllFeatures)
				s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { return nil })
				defer closeNow(t, s)
				if err := s.WaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.conn(t).put(bytes, nil)
				f.until(t, "a new connection", func() bool { return f.all == 2 && len(f.conns) == 1 })
				answered := slices.ContainsFunc(f.replies, func(r reply1) bool { return r.opaque == 9 && r.status == wire.StatusComm })
				if want := bytes[0] == wire.MagicRequest; answered != want {
					t.Errorf("ERROR_COMM was sent: %v, want %v", answered, want)
				}
			})
		})
	}
	t.Run("nonsense inside sound frames", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(wire.AllFeatures)
			handled := 0
			s := subscriber(t, map[string]*fake{addrA: f}, func(context.Context, *Message) error { handled++; return nil })
			defer closeNow(t, s)
			if err := s.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := f.conn(t)
			for op := range 256 {
				if op == int(wire.OpHeartbeat) {
					continue
				}
				c.put(wire.AppendRequest(nil, wire.Opcode(op), uint32(op), []byte{0xff, 1}, []byte{0xff, 2}))
				c.put(wire.AppendResponse(nil, wire.Opcode(op), 7, uint32(op), []byte{0xff, 1}, nil)) // answers to nothing
				synctest.Wait()
			}
			c.batch([]*wire.MessageHeader{pushed(1, "S-ump", nil)}, []byte("x"))
			synctest.Wait()
			if f.all != 1 || handled != 1 {
				t.Errorf("%d connections, %d handled", f.all, handled)
			}
		})
	})
}

func TestHeaderTypes(t *testing.T) {
	var h Header
	h.Set("s", "x")
	h.SetBool("b", true)
	h.SetInt8("i8", -8)
	h.SetInt16("i16", -16)
	h.SetInt32("i32", -32)
	h.SetFloat32("f32", 1.5)
	h.SetFloat64("f64", 1e300)
	h.SetInt64("twice", 1)
	h.Set("twice", "2")
	h.Set("gone", "x")
	h.Delete("gone")
	h.Delete("never")
	props, err := h.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	back := headerOf(props)
	for name, want := range map[string]string{"s": "x S", "b": "true Z", "i8": "-8 B", "i16": "-16 H", "i32": "-32 I", "f32": "1.5 F", "f64": "1e+300 D", "twice": "2 S"} {
		v, _ := back.Value(name)
		typ, _ := back.TypeOf(name)
		if got := v + " " + string(typ); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	if back.Len() != 8 {
		t.Errorf("%d properties", back.Len())
	}
	if v, ok := back.Bool("b"); !v || !ok {
		t.Error("Bool")
	}
	if _, ok := back.Bool("s"); ok {
		t.Error("text is no boolean")
	}
	if v, ok := back.Float("f32"); v != 1.5 || !ok {
		t.Error("Float")
	}
	for _, name := range []string{"s", "none"} {
		if _, ok := back.Int(name); ok {
			t.Errorf("%s is a number", name)
		}
		if _, ok := back.Float(name); ok {
			t.Errorf("%s is a fraction", name)
		}
	}
}

func TestManyPropertiesOfOneNameAreReadAsFew(t *testing.T) {
	var ps []wire.Property
	for i := range 1000 {
		ps = append(ps, wire.Property{Key: fmt.Append(nil, i%100), Value: fmt.Append(nil, i), HasValue: i != 950})
	}
	ps = append(ps, wire.Property{Key: []byte("__t.7"), Value: []byte("I"), HasValue: true}, wire.Property{Key: []byte("__t.x"), Value: []byte("I"), HasValue: true})
	h := headerOf(ps)
	if h.Len() != 100 { // 0..99 less 50, and the type of nothing
		t.Errorf("%d properties", h.Len())
	}
	if v, _ := h.Value("7"); v != "907" {
		t.Errorf("7 = %s", v)
	}
	if typ, _ := h.TypeOf("7"); typ != 'I' {
		t.Errorf("type %c", typ)
	}
}

func TestMessageIDText(t *testing.T) {
	id := NewMessageID()
	for _, s := range []string{id.String(), strings.ToUpper(id.String())} {
		if back, err := ParseMessageID(s); err != nil || back != id {
			t.Errorf("ParseMessageID(%s) = %v, %v", s, back, err)
		}
	}
	for _, s := range []string{"", "12", strings.Repeat("g", 32), id.String() + "0"} {
		if _, err := ParseMessageID(s); err == nil {
			t.Errorf("ParseMessageID(%q) passes", s)
		}
	}
}
