package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Configure()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// host is a Handler out of functions; nil ones take everything and do nothing.
type host struct {
	c        *Conn
	readable func(r Reader, most int) error
	closed   chan struct{}
	inside   atomic.Int32 // calls of Readable at a time
	t        testing.TB
}

func (h *host) Readable(r Reader, most int) error {
	if h.inside.Add(1) != 1 {
		h.t.Error("two calls of Readable overlap")
	}
	defer h.inside.Add(-1)
	select {
	case <-h.closed:
		h.t.Error("Readable after Closed")
	default:
	}
	return h.readable(r, most)
}

func (h *host) Closed() {
	if h.inside.Load() != 0 {
		h.t.Error("Closed while Readable is in work")
	}
	close(h.closed) // panics when it comes twice
}

// take empties r and returns what it held.
func take(r Reader) ([]byte, error) {
	var all []byte
	for n := r.Len(); n > 0; n = r.Len() {
		p, err := r.Next(n)
		if err != nil {
			return nil, err
		}
		all = append(all, p...)
		if err := r.Release(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// serve accepts on loopback; make gives the function that reads of each connection.
func serve(t *testing.T, make func(h *host) func(Reader, int) error) (addr string, hosts <-chan *host) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opened := chanOf[*host](16)
	var all []*host
	a, err := Serve(ln, Options{Open: func(c *Conn) Handler {
		h := &host{c: c, closed: chanOf[struct{}](0), t: t}
		h.readable = make(h)
		all = append(all, h)
		opened <- h
		return h
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		for _, h := range all {
			h.c.Shut()
			<-h.closed
		}
	})
	return ln.Addr().String(), opened
}

func chanOf[T any](n int) chan T { return make(chan T, n) }

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.TCPConn)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func noCheck(int) error { return nil }

// source prints its seed, so that a run can be done again.
func source(t *testing.T) (*rand.Rand, func(n int) []byte) {
	t.Helper()
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], rand.Uint64())
	t.Logf("seed %x", seed[:8])
	c := rand.NewChaCha8(seed)
	return rand.New(c), func(n int) []byte {
		b := make([]byte, n)
		_, _ = c.Read(b)
		return b
	}
}

func TestWhatArrivesIsHandledAndAnswered(t *testing.T) {
	addr, hosts := serve(t, func(h *host) func(Reader, int) error {
		return func(r Reader, _ int) error {
			b, err := take(r)
			if err == nil && len(b) > 0 {
				_, err = h.c.Write([][]byte{b}, noCheck)
			}
			return err
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		rnd, random := source(t)
		wg.Go(func() {
			c := dial(t, addr)
			want := random(200_000)
			go func() {
				for b := want; len(b) > 0; {
					n := min(len(b), 1+rnd.IntN(5000))
					if _, err := c.Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					b = b[n:]
				}
			}()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("what came back is not what was sent (%v)", err)
			}
			h := <-hosts
			if l := h.c.Local().String(); l != addr {
				t.Errorf("Local is %s, want %s", l, addr)
			}
			c.Close()
		})
	}
	wg.Wait()
}

func TestAPeerThatSendsTooFastIsPausedAndLosesNothing(t *testing.T) {
	release, paused := make(chan struct{}), make(chan struct{}, 100)
	var got bytes.Buffer
	addr, hosts := serve(t, func(*host) func(Reader, int) error {
		first := true
		return func(r Reader, most int) error {
			if first {
				first = false
				<-release
			}
			for r.Len() > 0 {
				if r.Len() > most {
					paused <- struct{}{}
					return ErrBehind
				}
				p, err := r.Next(min(r.Len(), 64<<10))
				if err != nil {
					return err
				}
				got.Write(p)
				if err := r.Release(); err != nil {
					return err
				}
			}
			return nil
		}
	})
	c := dial(t, addr)
	_, random := source(t)
	want := random(40 << 20)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- err
	}()
	h := <-hosts
	until(t, "much to be read ahead", func() bool { return h.c.Buffered() > 2*pauseAbove })
	close(release)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-h.closed // all may have been read ahead, and the pause be behind the last byte sent
	if len(paused) == 0 {
		t.Error("reading was never paused")
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes were handled, want the %d that were sent", got.Len(), len(want))
	}
}

// The poller may have taken bytes from the kernel, and not handed them over, when its connection is paused.
func TestWhatThePollerReadsDuringAPauseIsKept(t *testing.T) {
	waits := make(chan struct{})
	var once sync.Once
	yield = func() { once.Do(func() { close(waits) }); runtime.Gosched() }
	t.Cleanup(func() { yield = runtime.Gosched }) // after that of serve, which waits for the connection
	first, release := make(chan struct{}), make(chan struct{})
	var got bytes.Buffer
	addr, hosts := serve(t, func(*host) func(Reader, int) error {
		calls := 0
		return func(r Reader, _ int) error {
			b, err := take(r)
			got.Write(b)
			if calls++; calls == 1 && err == nil {
				close(first)
				<-release
				return ErrBehind
			}
			return err
		}
	})
	peer := dial(t, addr)
	send := func(text string) {
		t.Helper()
		if _, err := io.WriteString(peer, text); err != nil {
			t.Fatal(err)
		}
	}
	send("one ")
	h := <-hosts
	<-first
	holds := func() netpoll.Connection {
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		return h.c.mu.np
	}
	// From here on we are the poller.
	np := holds()
	op, state := operatorOf(np)
	until(t, "the poller to be free", func() bool { return atomic.CompareAndSwapInt32(state, operatorFree, operatorBusy) })
	bs := op.Inputs(make([][]byte, 1))
	send("two ")
	var n int
	until(t, "the bytes to come", func() (ok bool) {
		var err error
		n, err = unix.Read(op.FD, bs[0])
		return err == nil && n > 0
	})
	close(release)
	until(t, "the pause", func() bool {
		select {
		case <-waits:
			return true
		default:
			return holds() != np
		}
	})
	if err := op.InputAck(n); err != nil {
		t.Fatal(err)
	}
	atomic.StoreInt32(state, operatorFree)

	send("three")
	peer.Close()
	<-h.closed
	if got.String() != "one two three" {
		t.Errorf("handled were %q, want %q", got.String(), "one two three")
	}
}

func TestAPausedConnectionCanEndInEveryWay(t *testing.T) {
	bad := errors.New("bad bytes")
	for _, tc := range []struct {
		name string
		end  func(peer net.Conn, c *Conn)
		err  error
	}{
		{"the peer goes", func(peer net.Conn, _ *Conn) { peer.Close() }, nil},
		{"the host shuts it", func(_ net.Conn, c *Conn) { c.Shut() }, nil},
		{"its bytes are bad", func(net.Conn, *Conn) {}, bad},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ended := make(chan struct{})
			addr, hosts := serve(t, func(*host) func(Reader, int) error {
				return func(r Reader, most int) error {
					if most < math.MaxInt {
						return ErrBehind
					}
					<-ended
					_, err := take(r)
					return errors.Join(err, tc.err)
				}
			})
			peer := dial(t, addr)
			if _, err := peer.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			h := <-hosts
			tc.end(peer, h.c)
			close(ended)
			<-h.closed
			if _, err := h.c.TryWrite([][]byte{{1}}); !errors.Is(err, ErrClosed) {
				t.Errorf("TryWrite after the end: %v, want ErrClosed", err)
			}
			if _, err := h.c.Write([][]byte{{1}}, noCheck); !errors.Is(err, ErrClosed) {
				t.Errorf("Write after the end: %v, want ErrClosed", err)
			}
			h.c.Shut() // and does nothing
		})
	}
}

// drop takes what comes.
func drop(*host) func(Reader, int) error {
	return func(r Reader, _ int) error {
		_, err := take(r)
		return err
	}
}

func TestManyPiecesWaitForThePeersWindowAndArriveInOrder(t *testing.T) {
	addr, hosts := serve(t, drop)
	peer := dial(t, addr)
	h := <-hosts
	rnd, random := source(t)
	want := random(24 << 20)
	var vs [][]byte
	for b := want; len(b) > 0; {
		n := min(len(b), 1+rnd.IntN(8000))
		vs = append(vs, b[:n])
		b = b[n:]
	}
	if len(vs) < 2*maxVectors {
		t.Fatalf("%d pieces fit one or two calls", len(vs))
	}
	written := make(chan error, 1)
	full := make(chan struct{})
	last, once := -1, sync.Once{}
	go func() {
		n, err := h.c.Write(vs, func(sent int) error {
			once.Do(func() { close(full) })
			if sent < last || sent >= len(want) {
				t.Errorf("check(%d) after check(%d), of %d bytes", sent, last, len(want))
			}
			last = sent
			return nil
		})
		if n != len(want) {
			t.Errorf("%d bytes were written, want %d", n, len(want))
		}
		written <- err
	}()
	<-full // nobody has read yet
	got := make([]byte, len(want))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what came is not what was written (%v)", err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestAWriteThatWaitsEndsWithItsConnectionOrItsCheck(t *testing.T) {
	enough := errors.New("enough")
	for _, tc := range []struct {
		name string
		end  func(peer *net.TCPConn, h *host)
		want error // nil: any
	}{
		{"the peer goes", func(peer *net.TCPConn, _ *host) { _ = peer.SetLinger(0); peer.Close() }, nil},
		{"the host shuts it", func(_ *net.TCPConn, h *host) { h.c.Shut() }, nil},
		{"check says no", func(*net.TCPConn, *host) {}, enough},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, hosts := serve(t, drop)
			peer := dial(t, addr)
			h := <-hosts
			full, calls := make(chan struct{}), 0
			written := make(chan error, 1)
			go func() {
				_, err := h.c.Write([][]byte{make([]byte, 64<<20)}, func(int) error {
					if calls++; calls == 1 {
						close(full)
					}
					if calls > 3 && tc.want != nil { // it is asked again though nothing moves
						return tc.want
					}
					return nil
				})
				select {
				case <-h.closed:
					t.Error("Closed came before the Write had returned")
				default:
				}
				written <- err
			}()
			<-full
			tc.end(peer, h)
			if err := <-written; err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("Write returned %v, want %v", err, tc.want)
			}
		})
	}
}

func TestARefusedConnectionIsClosed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan *Conn, 1)
	a, err := Serve(ln, Options{Open: func(c *Conn) Handler { conns <- c; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n, err := dial(t, ln.Addr().String()).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v, want EOF", n, err)
	}
	kept := <-conns
	if _, err := kept.TryWrite([][]byte{{1}}); !errors.Is(err, ErrClosed) {
		t.Errorf("TryWrite: %v, want ErrClosed", err)
	}
	if kept.Buffered() != 0 {
		t.Error("a refused connection has bytes")
	}
}

func TestTheWritesOfAllConnectionsAreCounted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Uint64
	hosts := make(chan *host, 1)
	a, err := Serve(ln, Options{Writes: &writes, Open: func(c *Conn) Handler {
		h := &host{c: c, closed: make(chan struct{}), t: t}
		h.readable = drop(h)
		hosts <- h
		return h
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	peer := dial(t, ln.Addr().String())
	h := <-hosts
	if n, err := h.c.TryWrite([][]byte{[]byte("one "), []byte("write")}); n != 9 || err != nil {
		t.Fatalf("TryWrite: %d, %v", n, err)
	}
	if n := writes.Load(); n != 1 {
		t.Errorf("%d writes are counted, want 1 for two pieces", n)
	}
	peer.Close()
	<-h.closed
}

func TestCloseEndsTheAcceptingAtOnce(t *testing.T) {
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.77.1:0") // where nobody else takes the port when it is free again
		if err != nil {
			t.Fatal(err)
		}
		a, err := Serve(ln, Options{Open: func(*Conn) Handler { return nil }, Failed: func(err error, _ time.Duration) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			c.Close()
			t.Fatal("the port is open after Close")
		}
	}
}

func TestServeWantsATCPListener(t *testing.T) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := Serve(ln, Options{}); err == nil {
		t.Error("a Unix socket is served")
	}
}
