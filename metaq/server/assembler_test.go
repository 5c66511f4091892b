package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// memory is a Reader that holds what has "arrived".
type memory struct{ b []byte }

func (m *memory) Len() int                   { return len(m.b) }
func (m *memory) Peek(n int) ([]byte, error) { return m.b[:n], nil }
func (m *memory) Release() error             { return nil }
func (m *memory) Next(n int) ([]byte, error) {
	p := m.b[:n:n]
	m.b = m.b[n:]
	return p, nil
}

// trickle is a Reader into which bytes arrive between any two looks at it.
type trickle struct {
	memory
	rest []byte
	each int
}

func (m *trickle) Len() int {
	n := len(m.b)
	k := min(m.each, len(m.rest))
	m.b, m.rest = append(m.b, m.rest[:k]...), m.rest[k:]
	return n
}

// sink is a link whose writes go to memory; window limits what TryWrite takes.
type sink struct {
	got    bytes.Buffer
	window int
	writes int
	err    error
	cut    atomic.Bool
}

func (s *sink) TryWrite(vs [][]byte) (n int, err error) {
	s.writes++
	for _, v := range vs {
		if s.window >= 0 && n+len(v) > s.window {
			v = v[:s.window-n]
		}
		s.got.Write(v)
		n += len(v)
	}
	return n, s.err
}

func (s *sink) Write(vs [][]byte, check func(int) error) (n int, err error) {
	for _, v := range vs {
		if err := check(n); err != nil {
			return n, err
		}
		s.got.Write(v)
		n += len(v)
	}
	return n, s.err
}

func (s *sink) Buffered() int { return 0 }
func (s *sink) Finish()       { s.cut.Store(true) }
func (s *sink) Shut()         { s.cut.Store(true) }

func testConn(h HandlerFunc) (*Conn, *sink) {
	s := &Server{cfg: Config{Handler: h, Log: slog.New(slog.DiscardHandler)}.withDefaults(), stopped: make(chan struct{})}
	s.log.out = s.cfg.Log
	s.mu.conns = map[*Conn]struct{}{}
	c := newConn(s, netip.AddrPort{}, netip.AddrPort{})
	l := &sink{window: -1}
	c.link = l
	s.add(c)
	return c, l
}

func reqFrame(opaque int32, body string) []byte {
	var e remoting.Encoder
	e.Begin(remoting.Head{Code: 10, Opaque: opaque})
	_ = e.End([]byte(body))
	return e.Bytes()
}

// responses decodes what a sink got.
func responses(t *testing.T, b []byte) (opaques []int32, bodies []string) {
	t.Helper()
	r := bytes.NewReader(b)
	for {
		f, err := remoting.ReadFrame(r, nil)
		if errors.Is(err, io.EOF) {
			return opaques, bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		var h remoting.Header
		body, err := h.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		opaques, bodies = append(opaques, h.Opaque), append(bodies, string(body))
	}
}

func echoAll(b *Burst) {
	for i := range b.Requests {
		b.Reply(&b.Requests[i], 0, "")
		b.End(b.Requests[i].Body)
	}
}

// Bytes that arrive between two looks at the source must not make a partial frame whole unnoticed: it would wait for the next
// byte of the peer, or swallow the frame behind it.
func TestBytesThatArriveWhileAFrameIsCutBelongToTheirFrame(t *testing.T) {
	var stream []byte
	for i := range 20 {
		stream = append(stream, reqFrame(int32(i), strings.Repeat("x", i*7))...)
	}
	for first := range len(stream) {
		for _, each := range []int{1, 3, 50, 400, len(stream)} {
			src := &trickle{memory{bytes.Clone(stream[:first])}, bytes.Clone(stream[first:]), each}
			c, l := testConn(echoAll)
			for len(src.rest) > 0 || len(src.b) > 0 { // the poller calls again only while something is there
				if err := c.readable(src, anyMuch); err != nil {
					t.Fatalf("%d bytes, then %d at a time: %v", first, each, err)
				}
			}
			opaques, bodies := responses(t, l.got.Bytes())
			if len(opaques) != 20 || len(bodies[19]) != 19*7 || c.in.partial != nil || c.in.since.Load() != 0 {
				t.Fatalf("%d bytes, then %d at a time: %d of 20 requests, %d bytes wait", first, each, len(opaques), len(c.in.partial))
			}
		}
	}
}

// A consumer stores its offsets one-way and closes; an answer that cannot be written to it any more must not cost them.
func TestWhatAClientSentBeforeItWentIsHandled(t *testing.T) {
	for _, max := range []int{1, 256} { // in bursts of their own, and in one
		var handled []int32
		c, l := testConn(func(b *Burst) {
			for i := range b.Requests {
				handled = append(handled, b.Requests[i].Opaque)
				b.Fail(&b.Requests[i], 0, strings.Repeat("x", 2*maxAnswerBuffer))
				if !b.Continue() && b.Cut() {
					return
				}
			}
		})
		c.srv.cfg.MaxBurst = max
		l.err = io.ErrClosedPipe
		src := &memory{append(append(reqFrame(1, "x"), reqFrame(2, "x")...), reqFrame(3, "x")...)}
		if err := c.readable(src, anyMuch); err != nil {
			t.Errorf("%d a burst: %v", max, err)
		}
		if len(handled) != 3 || !l.cut.Load() {
			t.Errorf("%d a burst: handled %v of 1 to 3, shut %v", max, handled, l.cut.Load())
		}

		handled = nil
		c, _ = testConn(func(b *Burst) {
			handled = append(handled, b.Requests[0].Opaque)
			b.Conn.Close(ErrSlow)
			if !b.Cut() {
				t.Error("not cut off")
			}
		})
		c.srv.cfg.MaxBurst = max
		src = &memory{append(reqFrame(1, "x"), reqFrame(2, "x")...)}
		if err := c.readable(src, anyMuch); !errors.Is(err, ErrSlow) || len(handled) != 1 {
			t.Errorf("%d a burst, cut off by the server: %v, handled %v", max, err, handled)
		}
	}
}

func TestBytesThatArriveDuringALongBurstAreNewerThanIt(t *testing.T) {
	begun := time.Now()
	now, src := begun, &memory{reqFrame(1, "x")}
	c, _ := testConn(func(b *Burst) {
		if now.Equal(begun) {
			now = now.Add(10 * time.Minute)
			src.b = append(src.b, reqFrame(2, "x")[:20]...)
		}
		b.Hold(&b.Requests[0]) // an answer would count as well
	})
	c.srv.cfg.Now = func() time.Time { return now }
	if err := c.readable(src, anyMuch); err != nil {
		t.Fatal(err)
	}
	c.sweep(now.Add(c.srv.cfg.PartialTimeout - time.Second))
	if why := c.reason.Load(); why != nil {
		t.Errorf("closed before its time: %v", *why)
	}
	c.sweep(now.Add(c.srv.cfg.PartialTimeout + time.Second))
	if why := c.reason.Load(); why == nil || !errors.Is(*why, ErrPartial) {
		t.Error("half a frame waits for ever")
	}
}

func TestAStreamCutAnywhereGivesTheSameFrames(t *testing.T) {
	var stream []byte
	for i, n := range []int{0, 1, 100, 5000} {
		stream = append(stream, reqFrame(int32(i), strings.Repeat("x", n))...)
	}
	check := func(c *Conn, l *sink) {
		t.Helper()
		opaques, bodies := responses(t, l.got.Bytes())
		if len(opaques) != 4 || opaques[3] != 3 || len(bodies[3]) != 5000 || len(bodies[0]) != 0 || c.in.since.Load() != 0 || c.in.partial != nil {
			t.Fatalf("got %v", opaques)
		}
	}
	for cut := range stream { // two pieces, at every byte
		c, l := testConn(echoAll)
		for _, p := range [][]byte{stream[:cut], stream[cut:]} {
			if err := c.readable(&memory{bytes.Clone(p)}, anyMuch); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		check(c, l)
	}
	const seed = 7
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, seed))
	for range 200 { // many pieces
		c, l := testConn(echoAll)
		for rest := stream; len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 1+rnd.IntN(2000)))
			if err := c.readable(&memory{bytes.Clone(rest[:n])}, anyMuch); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		check(c, l)
	}
}

func TestAPromiseOfALargeFrameCostsWhatHasArrived(t *testing.T) {
	c, _ := testConn(echoAll)
	head := binary.BigEndian.AppendUint32(nil, remoting.MaxFrame-4)
	if err := c.readable(&memory{append(head, make([]byte, 100)...)}, anyMuch); err != nil {
		t.Fatal(err)
	}
	if n := cap(c.in.partial); n > 1024 {
		t.Errorf("%d bytes kept for 104 that arrived", n)
	}
	if c.in.since.Load() == 0 {
		t.Error("the partial frame has no start time")
	}
}

func TestABurstIsAnsweredWithOneWrite(t *testing.T) {
	calls := 0
	c, l := testConn(func(b *Burst) { calls++; echoAll(b) })
	var stream []byte
	for i := range int32(100) {
		stream = append(stream, reqFrame(i, "b")...)
	}
	if err := c.readable(&memory{stream}, anyMuch); err != nil {
		t.Fatal(err)
	}
	if calls != 1 || l.writes != 1 {
		t.Errorf("%d calls and %d writes for a burst of 100, want 1 and 1", calls, l.writes)
	}
	if opaques, _ := responses(t, l.got.Bytes()); len(opaques) != 100 {
		t.Errorf("%d answers", len(opaques))
	}
}

func TestABurstEndsAtItsLimits(t *testing.T) {
	var sizes []int
	c, _ := testConn(func(b *Burst) { sizes = append(sizes, len(b.Requests)); echoAll(b) })
	c.srv.cfg.MaxBurst = 8
	var stream []byte
	for i := range int32(20) {
		stream = append(stream, reqFrame(i, "")...)
	}
	for range 3 {
		stream = append(stream, reqFrame(0, strings.Repeat("x", maxBurstBytes))...)
	}
	if err := c.readable(&memory{stream}, anyMuch); err != nil {
		t.Fatal(err)
	}
	want := []int{8, 8, 5, 1, 1}
	if len(sizes) != len(want) {
		t.Fatalf("bursts of %v, want %v", sizes, want)
	}
	for i := range want {
		if sizes[i] != want[i] {
			t.Fatalf("bursts of %v, want %v", sizes, want)
		}
	}
}

func TestPartsAreWrittenInOrderAndReleasedOnce(t *testing.T) {
	mapped := []byte(strings.Repeat("0123456789abcdef", 512)) // 8 KiB, as if mapped
	released := 0
	c, l := testConn(func(b *Burst) {
		for i := range b.Requests {
			b.Reply(&b.Requests[i], 0, "FOUND").Int("n", int64(i))
			// Small, two neighbours, small, one apart.
			b.EndParts([][]byte{[]byte("head"), mapped[:1000], mapped[1000:3000], mapped[10:20], mapped[4000:5000]}, func() { released++ })
		}
	})
	l.window = 700 // the rest goes the blocking way
	if err := c.readable(&memory{append(reqFrame(1, ""), reqFrame(2, "")...)}, anyMuch); err != nil {
		t.Fatal(err)
	}
	want := "head" + string(mapped[:3000]) + string(mapped[10:20]) + string(mapped[4000:5000])
	opaques, bodies := responses(t, l.got.Bytes())
	if len(opaques) != 2 || bodies[0] != want || bodies[1] != want {
		t.Errorf("got %v, bodies of %d and %d bytes", opaques, len(bodies[0]), len(bodies[1]))
	}
	if released != 2 {
		t.Errorf("released %d times, want 2", released)
	}
	// Neighbours become one vector: head+head of frame, 3000, 10, 1000.
	o := NewOutput()
	o.Response(remoting.ReplyTo{}, 0, "")
	if err := o.EndParts([][]byte{mapped[:1000], mapped[1000:3000], mapped[3000:8192]}, nil); err != nil {
		t.Fatal(err)
	}
	if v := o.vectors(nil); len(v) != 2 {
		t.Errorf("%d vectors for a header and three neighbours, want 2", len(v))
	}
	o.done()
}

func TestPartsAreReleasedWhenNothingIsWritten(t *testing.T) {
	big := make([]byte, 1000)
	for name, setup := range map[string]func(*Conn, *sink){
		"closed":      func(c *Conn, _ *sink) { c.closed() },
		"write error": func(_ *Conn, l *sink) { l.err = io.ErrClosedPipe },
		"too large":   func(*Conn, *sink) {},
		"one-way":     func(*Conn, *sink) {},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := testConn(echoAll)
			setup(c, l)
			released := 0
			o := NewOutput()
			o.Response(remoting.ReplyTo{Oneway: name == "one-way"}, 0, "")
			parts := [][]byte{big}
			if name == "too large" {
				for range remoting.MaxFrame / len(big) {
					parts = append(parts, big)
				}
			}
			err := o.EndParts(parts, func() { released++ })
			if (err != nil) != (name == "too large") {
				t.Errorf("EndParts: %v", err)
			}
			_ = c.Send(o)
			if released != 1 {
				t.Errorf("released %d times, want 1", released)
			}
		})
	}
}

func TestAPanicIsAnsweredOnEveryRequestWithoutAnAnswer(t *testing.T) {
	c, l := testConn(func(b *Burst) {
		b.Reply(&b.Requests[0], 0, "")
		b.End([]byte("done"))
		b.Hold(&b.Requests[1])
		b.Reply(&b.Requests[2], 0, "") // half of an answer
		panic("bug")
	})
	var stream []byte
	for i := range int32(5) {
		stream = append(stream, reqFrame(i, "")...)
	}
	if err := c.readable(&memory{stream}, anyMuch); err != nil {
		t.Fatalf("the connection ended: %v", err)
	}
	opaques, bodies := responses(t, l.got.Bytes())
	if len(opaques) != 4 || opaques[0] != 0 || opaques[1] != 2 || opaques[2] != 3 || opaques[3] != 4 || bodies[0] != "done" {
		t.Errorf("answers to %v, want to 0 2 3 4: 1 is held", opaques)
	}
	if n := c.srv.Stats().Panics; n != 1 {
		t.Errorf("%d panics counted", n)
	}
}

func TestOnewayRequestsAndOversizeAnswers(t *testing.T) {
	c, l := testConn(func(b *Burst) {
		for i := range b.Requests {
			r := &b.Requests[i]
			b.Reply(r, 0, "")
			if r.Opaque == 2 {
				b.End(make([]byte, remoting.MaxFrame))
				continue
			}
			b.End(nil)
		}
	})
	var e remoting.Encoder
	e.Begin(remoting.Head{Code: 10, Opaque: 1, Flag: remoting.FlagOneway})
	_ = e.End(nil)
	if err := c.readable(&memory{append(append(bytes.Clone(e.Bytes()), reqFrame(2, "")...), reqFrame(3, "")...)}, anyMuch); err != nil {
		t.Fatal(err)
	}
	opaques, _ := responses(t, l.got.Bytes())
	if len(opaques) != 2 || opaques[0] != 2 || opaques[1] != 3 {
		t.Errorf("answers to %v, want to 2 (an error) and 3", opaques)
	}
}

func TestCallsAreAnsweredByOpaqueOrByTheEndOfTheConnection(t *testing.T) {
	c, l := testConn(echoAll)
	type result struct {
		r   *Response
		err error
	}
	done := make(chan result, 2)
	call := func() {
		r, err := c.Call(context.Background(), remoting.ReqGetConsumerRunningInfo, func(e *remoting.Encoder) { e.String("clientId", "x") }, nil)
		done <- result{r, err}
	}
	go call()
	wait := func(n int) {
		for {
			c.calls.Lock()
			m := len(c.calls.waiting)
			c.calls.Unlock()
			if m == n {
				return
			}
			runtime.Gosched()
		}
	}
	wait(1)
	answer := func(opaque int32) {
		var e remoting.Encoder
		e.Response(remoting.ReplyTo{Opaque: opaque}, 0, "")
		e.String("k", "v")
		_ = e.End([]byte("body"))
		if err := c.readable(&memory{e.Bytes()}, anyMuch); err != nil {
			t.Fatal(err)
		}
	}
	answer(99) // a stray
	answer(1)
	if got := <-done; got.err != nil || got.r.Get("k") != "v" || string(got.r.Body) != "body" {
		t.Errorf("got %+v, %v", got.r, got.err)
	}
	if n := c.srv.Stats().Strays; n != 1 {
		t.Errorf("%d strays, want 1", n)
	}
	go call()
	wait(1)
	c.closed()
	if got := <-done; !errors.Is(got.err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", got.err)
	}
	if _, err := c.Call(context.Background(), 1, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v on a closed connection", err)
	}
	_ = l
}

// FuzzReadable feeds a stream in two pieces: the answers must not depend on where it is cut, and nothing may be kept but the start
// of one frame.
func FuzzReadable(f *testing.F) {
	f.Add([]byte(nil), uint(0))
	f.Add(append(reqFrame(1, "a"), reqFrame(2, "bb")...), uint(5))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint(2))
	f.Add([]byte{0, 0, 0, 2, 0, 0}, uint(3))
	f.Add(binary.BigEndian.AppendUint32(nil, remoting.MaxFrame-4), uint(4))
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		run := func(pieces ...[]byte) (string, bool) {
			c, l := testConn(echoAll)
			for _, p := range pieces {
				if err := c.readable(&memory{bytes.Clone(p)}, anyMuch); err != nil {
					return l.got.String(), false
				}
			}
			if len(c.in.partial) > len(b) {
				t.Fatalf("%d bytes kept of %d", len(c.in.partial), len(b))
			}
			return l.got.String(), true
		}
		n := int(cut % uint(len(b)+1))
		whole, ok := run(b)
		pieces, ok2 := run(b[:n], b[n:])
		if ok != ok2 || whole != pieces {
			t.Fatalf("cut at %d: %q %v, whole: %q %v", n, pieces, ok2, whole, ok)
		}
	})
}
