package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

const addrA, addrB = "a:9877", "b:9877"

func publisher(t *testing.T, fakes map[string]*fake, opts ...Option) *Publisher {
	t.Helper()
	servers := make([]string, 0, len(fakes))
	for s := range fakes {
		servers = append(servers, s)
	}
	slices.Sort(servers)
	p, err := NewPublisher("P-trade", servers, append([]Option{dialer(fakes), WithHostName("h1")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(t.Context()) }) // closed by most tests before, as a bubble asks for
	return p
}

func message() *Message {
	return &Message{Topic: "TRADE", Type: "created", Body: []byte("hello")}
}

func closeNow(t *testing.T, c interface{ Close(context.Context) error }) {
	t.Helper()
	if err := c.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestSendCarriesEveryField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		p := publisher(t, map[string]*fake{addrA: f})
		defer closeNow(t, p)
		m := message()
		m.Kind, m.AtMostOnce, m.Priority = KindString, true, 9
		m.TTL, m.RetryFor, m.AckTimeout, m.Delay = 1500*time.Millisecond, time.Hour, 7*time.Second, time.Minute
		m.TargetGroup = "S-ump"
		m.Header.Set("seller", "42")
		m.Header.SetBool("vip", true)
		m.Header.SetInt64("n", math.MinInt64)
		m.Header.SetFloat64("x", 0.25)
		m.Header.Set("KEYS", "no key")
		r, err := p.Send(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if r.ID.IsZero() || r.ID != m.ID || r.Server != addrA || r.Durability != DurabilityAsync || r.Attempts != 1 {
			t.Errorf("receipt %+v", r)
		}
		got := f.stored[0]
		h := got.header
		if got.id != m.ID || string(h.Topic) != "TRADE" || string(h.Type) != "created" || string(h.Group) != "P-trade" || string(got.body) != "hello" {
			t.Errorf("stored %+v", got)
		}
		if h.Flag != int32(KindString)|wire.FlagSendOnce || !h.Committed || h.Priority != 9 || h.BornTime != uint64(time.Now().UnixMilli()) {
			t.Errorf("header %+v", h)
		}
		if h.TTL != 2 || h.DLQTime != 3600 || h.PostTimeout != 7000 || h.PostDelay != 60000 || string(h.TargetGroup) != "S-ump" || string(h.PublisherHost) != "h1" {
			t.Errorf("header %+v", h)
		}
		var props []string
		for _, x := range h.Properties {
			props = append(props, string(x.Key)+"="+string(x.Value))
		}
		want := "seller=42 vip=true __t.vip=Z n=-9223372036854775808 __t.n=J x=0.25 __t.x=D KEYS=no key"
		if s := strings.Join(props, " "); s != want {
			t.Errorf("properties %s, want %s", s, want)
		}
	})
}

func TestSendRefusesBadMessagesBeforeSending(t *testing.T) {
	long := strings.Repeat("v", wire.MaxValue)
	tests := []struct {
		name string
		give func(*Message)
		want string
	}{
		{"no topic", func(m *Message) { m.Topic = "" }, "topic"},
		{"topic with a dot", func(m *Message) { m.Topic = "a.b" }, "topic"},
		{"system topic", func(m *Message) { m.Topic = "rmq_sys_fusion_oq" }, "topic"},
		{"no type", func(m *Message) { m.Type = "" }, "messageType"},
		{"type with a bar", func(m *Message) { m.Type = "a||b" }, "messageType"},
		{"group with a blank", func(m *Message) { m.Group = "a b" }, "groupId"},
		{"no body", func(m *Message) { m.Body = nil }, "body"},
		{"body of 4 MiB and 1", func(m *Message) { m.Body = make([]byte, wire.MaxBody+1) }, "body"},
		{"system key", func(m *Message) { m.Header.Set("__x", "1") }, "__x"},
		{"allowed system key of a user", func(m *Message) { m.Header.Set("__unit", "1") }, "__unit"},
		{"type tag by hand", func(m *Message) { m.Header.Set("__t.a", "I") }, "__t.a"},
		{"a zero byte in a value", func(m *Message) { m.Header.Set("a", "b\x00c") }, "value"},
		{"0x01 in a value", func(m *Message) { m.Header.Set("a", "b\x01") }, "value"},
		{"0x02 in a key", func(m *Message) { m.Header.Set("a\x02", "b") }, "key"},
		{"no UTF-8", func(m *Message) { m.Header.Set("a", "\xff") }, "value"},
		{"key of 129 bytes", func(m *Message) { m.Header.Set(strings.Repeat("k", 129), "b") }, "key"},
		{"value of 4097 bytes", func(m *Message) { m.Header.Set("a", long+"v") }, "value"},
		{"more than 16 KiB of header", func(m *Message) {
			for i := range 4 {
				m.Header.Set(fmt.Sprint(i), long)
			}
		}, "16384"},
		{"negative TTL", func(m *Message) { m.TTL = -1 }, "TTL"},
		{"TTL of 100 years", func(m *Message) { m.TTL = 100 * 365 * 24 * time.Hour }, "TTL"},
		{"negative delay", func(m *Message) { m.Delay = -1 }, "delay"},
		{"kind", func(m *Message) { m.Kind = 8 }, "kind"},
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		p := publisher(t, map[string]*fake{addrA: f})
		defer closeNow(t, p)
		for _, tc := range tests {
			m := message()
			tc.give(m)
			_, err := p.Send(t.Context(), m)
			if !errors.Is(err, CodeFormat) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "FORMAT_ERROR") {
				t.Errorf("%s: Send = %v, want FORMAT_ERROR with %q", tc.name, err, tc.want)
			}
			if err := p.SendAsync(t.Context(), m, func(Receipt, error) { t.Error("callback of a bad message") }); !errors.Is(err, CodeFormat) {
				t.Errorf("%s: SendAsync = %v", tc.name, err)
			}
		}
		if _, err := p.Send(t.Context(), nil); !errors.Is(err, CodeFormat) || !strings.Contains(err.Error(), "message is nil") {
			t.Errorf("Send of no message = %v", err)
		}
		if err := p.SendAsync(t.Context(), nil, func(Receipt, error) {}); !errors.Is(err, CodeFormat) {
			t.Errorf("SendAsync of no message = %v", err)
		}
		if err := p.SendAsync(t.Context(), message(), nil); !errors.Is(err, CodeFormat) || !strings.Contains(err.Error(), "function is nil") {
			t.Errorf("SendAsync without a function = %v", err)
		}
		if len(f.stored) != 0 {
			t.Errorf("%d bad messages were sent", len(f.stored))
		}
		m := message() // the same sending, after a bad one
		if _, err := p.Send(t.Context(), m); err != nil {
			t.Error(err)
		}
	})
}

// TestSendTriesAnotherServer checks the table of spec/notify.md 2.5: which statuses another server is tried for.
func TestSendTriesAnotherServer(t *testing.T) {
	tests := []struct {
		status wire.Status
		code   Code
		retry  bool
	}{
		{wire.StatusError, CodeError, false}, {wire.StatusFailed, CodeException, true}, {wire.StatusUnknown, CodeUnknown, false},
		{wire.StatusBusy, CodeBusy, true}, {wire.StatusComm, CodeComm, true}, {wire.StatusNoOpcode, CodeNoProcessor, false},
		{wire.StatusTimeout, CodeTimeout, true}, {99, CodeError, false},
	}
	for _, tc := range tests {
		t.Run(tc.status.String(), func(t *testing.T) {
			for _, async := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var ids []string
					refusing := func(refuse *bool) func(*fakeConn, wire.Frame, *wire.MessageHeader) {
						return func(c *fakeConn, f wire.Frame, h *wire.MessageHeader) {
							mu.Lock()
							defer mu.Unlock()
							ids = append(ids, string(h.ID))
							if *refuse {
								*refuse = false
								c.answer(f, tc.status, "no stock")
								return
							}
							c.store(f, h)
						}
					}
					refuse := true
					a, b := newFake(wire.AllFeatures), newFake(wire.AllFeatures)
					a.send, b.send = refusing(&refuse), refusing(&refuse)
					p := publisher(t, map[string]*fake{addrA: a, addrB: b})
					defer closeNow(t, p)
					synctest.Wait()
					var r Receipt
					var err error
					if async {
						got := make(chan struct{})
						if err := p.SendAsync(t.Context(), message(), func(ar Receipt, aerr error) { r, err = ar, aerr; close(got) }); err != nil {
							t.Fatal(err)
						}
						<-got
					} else {
						r, err = p.Send(t.Context(), message())
					}
					if tc.retry {
						if err != nil || r.Attempts != 2 || len(ids) != 2 || ids[0] != ids[1] || len(a.stored)+len(b.stored) != 1 {
							t.Fatalf("async=%v: Send = %+v, %v; ids %x", async, r, err, ids)
						}
						return
					}
					var e *Error
					if !errors.As(err, &e) || !errors.Is(err, tc.code) || e.Text != "no stock" || e.Server == "" || len(ids) != 1 {
						t.Fatalf("async=%v: Send = %+v, %v, want %v", async, r, err, tc.code)
					}
				})
			}
		})
	}
}

func TestSendEndsWithinItsTime(t *testing.T) {
	silent := func(*fakeConn, wire.Frame, *wire.MessageHeader) {}
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(0), newFake(0)
		a.send, b.send = silent, silent
		p := publisher(t, map[string]*fake{addrA: a, addrB: b})
		defer closeNow(t, p)
		synctest.Wait()
		start := time.Now()
		_, err := p.Send(t.Context(), message())
		if took := time.Since(start); !errors.Is(err, CodeTimeout) || took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("Send = %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = p.Send(ctx, message())
		if took := time.Since(start); !errors.Is(err, CodeTimeout) || took > 200*time.Millisecond {
			t.Errorf("Send = %v after %v", err, took)
		}
		cancelled, stop := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, stop)
		if _, err = p.Send(cancelled, message()); !errors.Is(err, context.Canceled) || !errors.Is(err, CodeTimeout) {
			t.Errorf("Send = %v", err)
		}
	})
}

func TestSendIsAnsweredByTheOtherServerWhenOneIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(0), newFake(0)
		a.send = func(*fakeConn, wire.Frame, *wire.MessageHeader) {}
		p := publisher(t, map[string]*fake{addrA: a, addrB: b})
		defer closeNow(t, p)
		synctest.Wait()
		for range 4 {
			r, err := p.Send(t.Context(), message())
			if err != nil || r.Server != addrB {
				t.Errorf("Send = %+v, %v", r, err)
			}
		}
	})
}

func TestSendWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		f.refuse = errors.New("refused")
		p := publisher(t, map[string]*fake{addrA: f})
		defer closeNow(t, p)
		start := time.Now()
		_, err := p.Send(t.Context(), message())
		if !errors.Is(err, CodeNoConnection) || !strings.Contains(err.Error(), "refused") || time.Since(start) != 3*time.Second {
			t.Errorf("Send = %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.WaitReady(ctx); !errors.Is(err, CodeNoConnection) {
			t.Errorf("WaitReady = %v", err)
		}
		f.mu.Lock()
		f.refuse = nil
		f.mu.Unlock()
		if err := p.WaitReady(t.Context()); err != nil {
			t.Errorf("WaitReady = %v", err)
		}
		if _, err := p.Send(t.Context(), message()); err != nil {
			t.Errorf("Send = %v", err)
		}
	})
}

// TestSendSurvivesABrokenConnection: the answer is lost with the connection; the same id goes out again on the next one.
func TestSendSurvivesABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		var ids []string
		f.send = func(c *fakeConn, fr wire.Frame, h *wire.MessageHeader) {
			ids = append(ids, string(h.ID))
			if len(ids) == 1 {
				_ = c.nc.Close()
				return
			}
			c.store(fr, h)
		}
		p := publisher(t, map[string]*fake{addrA: f})
		defer closeNow(t, p)
		r, err := p.Send(t.Context(), message())
		if err != nil || r.Attempts != 2 || len(ids) != 2 || ids[0] != ids[1] {
			t.Errorf("Send = %+v, %v, ids %x", r, err, ids)
		}
	})
}

func TestSendsArePipelined(t *testing.T) {
	const n = 100
	synctest.Test(t, func(t *testing.T) {
		f := newFake(wire.AllFeatures)
		var waiting []func()
		f.send = func(c *fakeConn, fr wire.Frame, h *wire.MessageHeader) {
			fr.Body = slices.Clone(fr.Body)
			waiting = append(waiting, func() { c.store(fr, h) })
			if len(waiting) == n { // all came before one was answered; the last is answered first
				for _, w := range slices.Backward(waiting) {
					w()
				}
			}
		}
		p := publisher(t, map[string]*fake{addrA: f})
		defer closeNow(t, p)
		var wg sync.WaitGroup
		for i := range n {
			m := message()
			m.Body = fmt.Append(nil, i)
			if i%2 == 0 {
				wg.Go(func() {
					if r, err := p.Send(t.Context(), m); err != nil || r.ID != m.ID {
						t.Errorf("Send = %+v, %v", r, err)
					}
				})
				continue
			}
			wg.Add(1)
			err := p.SendAsync(t.Context(), m, func(r Receipt, err error) {
				if err != nil || r.ID != m.ID {
					t.Errorf("SendAsync = %+v, %v", r, err)
				}
				wg.Done()
			})
			if err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if len(f.stored) != n {
			t.Errorf("%d stored", len(f.stored))
		}
	})
}

func TestSendAsyncWaitsWhileTooMuchIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		open := make(chan func(), 10)
		f.send = func(c *fakeConn, fr wire.Frame, h *wire.MessageHeader) {
			fr.Body = slices.Clone(fr.Body)
			open <- func() { c.f.mu.Lock(); defer c.f.mu.Unlock(); c.store(fr, h) }
		}
		p := publisher(t, map[string]*fake{addrA: f}, WithMaxInFlight(2), WithTimeout(time.Minute))
		var ended atomic.Int32
		send := func(ctx context.Context) error {
			return p.SendAsync(ctx, message(), func(Receipt, error) { ended.Add(1) })
		}
		if err := errors.Join(send(t.Context()), send(t.Context())); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := send(short); !errors.Is(err, CodeTimeout) {
			t.Fatalf("third SendAsync = %v", err)
		}
		(<-open)()
		synctest.Wait()
		if err := send(t.Context()); err != nil {
			t.Fatalf("SendAsync with room = %v", err)
		}
		synctest.Wait()
		(<-open)()
		(<-open)()
		closeNow(t, p)
		if n := ended.Load(); n != 3 {
			t.Errorf("%d callbacks before Close returned", n)
		}
	})
}

func TestCloseEndsSendsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		f.send = func(*fakeConn, wire.Frame, *wire.MessageHeader) {}
		p := publisher(t, map[string]*fake{addrA: f}, WithTimeout(time.Hour))
		var errs []error
		if err := p.SendAsync(t.Context(), message(), func(_ Receipt, err error) { errs = append(errs, err) }); err != nil {
			t.Fatal(err)
		}
		synced := make(chan error)
		go func() {
			_, err := p.Send(t.Context(), message())
			synced <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := make(chan error)
		go func() { closed <- p.Close(ctx) }()
		if err := <-synced; !errors.Is(err, CodeTimeout) {
			t.Errorf("Send = %v", err)
		}
		if err := <-closed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v", err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], CodeComm) && !errors.Is(errs[0], CodeTimeout) {
			t.Errorf("callbacks %v", errs)
		}
		if _, err := p.Send(t.Context(), message()); !errors.Is(err, ErrClosed) {
			t.Errorf("Send on a closed publisher = %v", err)
		}
		if err := p.WaitReady(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("WaitReady on a closed publisher = %v", err)
		}
	})
}

func TestCompression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		p := publisher(t, map[string]*fake{addrA: f}, WithCompression(100, 5))
		defer closeNow(t, p)
		inflate := inflater{max: 1 << 20}
		for _, body := range [][]byte{bytes.Repeat([]byte("a"), 50_000), []byte("short"), []byte(strings.Repeat("b", 100)), random(5000)} {
			m := message()
			m.Body = body
			if _, err := p.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			got := f.stored[len(f.stored)-1]
			compressed := got.header.Flag&wire.FlagCompressed != 0
			if want := len(body) >= 100 && body[0] == body[1]; compressed != want {
				t.Errorf("body of %d: compressed %v", len(body), compressed)
			}
			if compressed {
				out, err := inflate.decompress(got.body, "")
				if err != nil {
					t.Fatal(err)
				}
				got.body = out
			}
			if !bytes.Equal(got.body, body) {
				t.Errorf("body of %d changed", len(body))
			}
		}
	})
}

// random is text that does not compress.
func random(n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		id := NewMessageID()
		b = append(b, id[:]...)
	}
	b[0], b[1] = 'x', 'y'
	return b[:n]
}

func TestOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string][]Option{
		"WithTimeout": {WithTimeout(0)}, "WithMaxInFlight": {WithMaxInFlight(0)}, "WithCompression: level": {WithCompression(1, 10)},
		"WithWorkers": {WithWorkers(-1)}, "WithWindow": {WithWindow(0, 1)}, "WithMaxBody": {WithMaxBody(0)}, "WithReconnect": {WithReconnect(0)},
		"WithHeartbeat": {WithHeartbeat(time.Hour)}, "WithLogger": {WithLogger(nil)}, "WithDialer": {WithDialer(nil)},
	} {
		if p, err := NewPublisher("g", []string{addrA}, opts...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("NewPublisher with %s = %v, %v", name, p, err)
		}
	}
	for _, servers := range [][]string{nil, {"noport"}, {addrA, addrA}} {
		if p, err := NewPublisher("g", servers); err == nil {
			t.Errorf("NewPublisher(%q) = %v", servers, p)
		}
	}
	if p, err := NewPublisher("a b", []string{addrA}); err == nil {
		t.Errorf("NewPublisher with a bad group = %v", p)
	}
	if s, err := NewSubscriber("g", []string{addrA}, nil); err == nil {
		t.Errorf("NewSubscriber without a handler = %v", s)
	}
}
