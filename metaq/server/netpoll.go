package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// acceptor takes connections from a listener without wrapping them in package net, whose poller would hold them as well.
type acceptor struct {
	file *os.File // a duplicate of the listener's descriptor
	raw  syscall.RawConn
}

func newAcceptor(ln net.Listener) (*acceptor, error) {
	l, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("server: %T is not a TCP listener", ln)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	// A net.Listener's RawConn cannot wait, that of a non-blocking os.File can.
	fd := -1
	if cerr := raw.Control(func(l uintptr) { fd, err = unix.FcntlInt(l, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("server: duplicate the listener: %w", err)
	}
	a := &acceptor{file: os.NewFile(uintptr(fd), "listener")}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		a.file.Close()
		return nil, fmt.Errorf("server: %w", err)
	}
	return a, nil
}

// accept waits for a connection and returns its non-blocking descriptor.
func (a *acceptor) accept() (fd int, peer unix.Sockaddr, err error) {
	rerr := a.raw.Read(func(l uintptr) bool {
		fd, peer, err = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return -1, nil, rerr
	}
	return fd, peer, err
}

func (s *Server) acceptLoop(a *acceptor) {
	defer s.workers.Done()
	defer a.file.Close()
	var pause time.Duration
	for {
		fd, peer, err := a.accept()
		if err == nil {
			pause = 0
			s.open(fd, peer)
			continue
		}
		if s.stopping.Load() {
			return
		}
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		// Out of descriptors or memory: connections wait in the kernel's queue meanwhile.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.warn("cannot accept connections", "error", err, "retry_ms", pause.Milliseconds())
		select {
		case <-time.After(pause):
		case <-s.stopped:
			return
		}
	}
}

// open makes a Conn of an accepted descriptor.
func (s *Server) open(fd int, peer unix.Sockaddr) {
	s.count.accepted.Add(1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // fails only for a socket that is gone
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	var local netip.AddrPort
	if sa, err := unix.Getsockname(fd); err == nil {
		local = addrPort(sa)
	}
	c := newConn(s, addrPort(peer), local)
	l := &pollLink{c: c, fd: fd}
	c.link = l
	if !s.add(c) {
		_ = unix.Close(fd)
		s.count.refused.Add(1)
		if !s.stopping.Load() {
			s.log.warn("connection refused", "remote", c.remote, "limit", s.cfg.MaxConns)
		}
		return
	}
	if s.cfg.Opened != nil {
		s.hook("opened hook", c, func() { s.cfg.Opened(c) })
	}
	l.register(fd)
}

// register gives the descriptor to netpoll, at first and again after a pause.
func (l *pollLink) register(fd int) {
	np, err := netpoll.NewFDConnection(fd)
	if err != nil { // epoll refused it; netpoll has closed the descriptor
		l.dead()
		l.c.fail(fmt.Errorf("register with netpoll: %w", err))
		l.c.closed()
		return
	}
	l.flush.Lock() // a writer that began during a pause is not of the new connection
	l.mu.Lock()
	l.np, l.paused = np, false
	l.mu.Unlock()
	l.flush.Unlock()
	// The close callback first: netpoll runs what it knows when the peer closes, and until there is an OnRequest it leaves
	// closing to us.
	_ = np.AddCloseCallback(func(netpoll.Connection) error {
		l.released(np)
		return nil
	})
	_ = np.SetOnRequest(func(context.Context, netpoll.Connection) error {
		l.onRequest(np)
		return nil
	})
	if !np.IsActive() {
		_ = np.Close()
	}
}

// onRequest runs on netpoll's pool while np has unread bytes. It must leave none, or be called again for ever.
func (l *pollLink) onRequest(np netpoll.Connection) {
	err := l.read(np, pauseAbove)
	if errors.Is(err, errBehind) {
		if l.pause(np) {
			return
		}
		err = l.read(np, anyMuch)
	}
	if err != nil {
		_ = np.Close()
	}
}

// read serves what np has read. An error other than errBehind has been noted as the end of the connection.
func (l *pollLink) read(np netpoll.Connection, most int) (err error) {
	c, s := l.c, l.c.srv
	defer func() {
		// The handler's panics are contained in Burst.call; this one would be ours, and netpoll's pool would swallow it.
		if v := recover(); v != nil {
			s.panicked("connection handler", c, v)
			err = fmt.Errorf("internal error: %v", v)
			c.fail(err)
		}
	}()
	err = c.readable(np.Reader(), most)
	if err != nil && !errors.Is(err, errBehind) && c.fail(err) {
		switch {
		case errors.Is(err, ErrForeign):
			s.count.foreign.Add(1)
			s.log.warn("connection closed: "+err.Error(), "remote", c.remote)
		case errors.Is(err, ErrShutdown):
		default:
			s.count.malformed.Add(1)
			s.log.warn("connection closed", "remote", c.remote, "reason", err)
		}
	}
	return err
}

// pauseAbove is how many bytes netpoll may have read ahead after a burst.
const pauseAbove = 4 << 20

// pause makes netpoll stop reading, for a client that sends faster than it is handled: its bytes then wait in the kernel, and
// soon on the client's side. netpoll knows no pause, so the connection is detached from it and registered anew when all that
// had been read is handled. Called from onRequest, which has to return when this returns true; netpoll lets go of the
// descriptor then and calls released. False: not now, somebody writes through netpoll.
func (l *pollLink) pause(np netpoll.Connection) bool {
	d, ok := np.(interface{ Detach() error })
	if !ok || !l.flush.TryLock() {
		return false
	}
	defer l.flush.Unlock()
	l.mu.Lock()
	l.paused = true
	l.mu.Unlock()
	l.c.srv.count.paused.Add(1)
	_ = d.Detach() // only marks it while onRequest runs
	return true
}

// released is netpoll's close callback: it does not use the descriptor any more, nor reads.
func (l *pollLink) released(np netpoll.Connection) {
	l.mu.Lock()
	paused, fd := l.paused, l.fd
	l.mu.Unlock()
	if !paused { // netpoll closes it
		l.dead()
		l.c.closed()
		return
	}
	if l.read(np, anyMuch) == nil {
		l.register(fd)
		return
	}
	l.dead()
	_ = unix.Close(fd)
	l.c.closed()
}

// pollLink is a link over netpoll. Writes that do not block go to the descriptor directly, from whatever goroutine has something
// to send; netpoll's own buffer is used only to wait for a peer whose window is full, and is empty otherwise.
type pollLink struct {
	c *Conn

	// flush is held while netpoll's write buffer is in use, which panics once netpoll has closed it. Taken before mu.
	flush sync.Mutex

	mu sync.Mutex // held over system calls on fd, which do not block; netpoll closes it only after dead
	fd int        // -1 when it is about to be closed
	np netpoll.Connection
	// paused: netpoll has let go of fd, or will when onRequest returns. Its write buffer is not to be used.
	paused bool
}

// dead is called before netpoll lets go of the descriptor and its buffers. A flush in progress has been told to give up by
// then, so this waits for it only as long as it takes to wake up.
func (l *pollLink) dead() {
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	l.fd = -1
	l.mu.Unlock()
}

// maxVectors is the kernel's limit for one writev.
const maxVectors = 1024

// iovecs are scratch space for writev, which unix.Writev would allocate anew for more than eight pieces.
var iovecs = sync.Pool{New: func() any { return new([maxVectors]unix.Iovec) }}

func (l *pollLink) tryWrite(vs [][]byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for len(vs) > 0 {
		if l.fd < 0 {
			return total, ErrClosed
		}
		batch := vs[:min(len(vs), maxVectors)]
		size := 0
		for _, v := range batch {
			size += len(v)
		}
		n, err := writev(l.fd, batch)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		total += max(n, 0)
		if errors.Is(err, unix.EAGAIN) {
			return total, nil
		}
		if err != nil || n < size {
			return total, err
		}
		vs = vs[len(batch):]
	}
	return total, nil
}

// writev is one system call for up to maxVectors pieces, none of them empty.
func writev(fd int, vs [][]byte) (int, error) {
	if len(vs) == 1 {
		return unix.Write(fd, vs[0])
	}
	iov := iovecs.Get().(*[maxVectors]unix.Iovec)
	for i, v := range vs {
		iov[i].Base = unsafe.SliceData(v)
		iov[i].SetLen(len(v))
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(len(vs)))
	clear(iov[:len(vs)]) // the pool must not keep the bodies
	iovecs.Put(iov)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// flushBytes is how much must go within one write timeout.
const flushBytes = 256 << 10

func (l *pollLink) write(vs [][]byte) error {
	l.flush.Lock()
	defer l.flush.Unlock()
	l.mu.Lock()
	np, fd, paused := l.np, l.fd, l.paused
	l.mu.Unlock()
	if np == nil || fd < 0 {
		return ErrClosed
	}
	// netpoll's own write timeout needs a remote address, which a connection made from a descriptor does not have, and a timer.
	defer l.c.flushing.Store(0)
	if paused {
		return l.writePaused(fd, vs)
	}
	w := np.Writer()
	pending := 0
	flush := func() error {
		pending = 0
		l.c.flushing.Store(l.c.srv.cfg.Now().UnixNano())
		return w.Flush()
	}
	for _, v := range vs {
		for len(v) > 0 {
			n := min(len(v), flushBytes-pending)
			if _, err := w.WriteBinary(v[:n]); err != nil {
				return err
			}
			v = v[n:]
			if pending += n; pending == flushBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// writePaused writes without netpoll: Go's own poller waits for the peer's window, on a duplicate of fd that is ours to close.
func (l *pollLink) writePaused(fd int, vs [][]byte) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the descriptor: %w", err)
	}
	f := os.NewFile(uintptr(dup), "connection")
	defer f.Close()
	for _, v := range vs {
		for len(v) > 0 {
			n := min(len(v), flushBytes)
			l.c.flushing.Store(l.c.srv.cfg.Now().UnixNano())
			if _, err := f.Write(v[:n]); err != nil {
				return err
			}
			v = v[n:]
		}
	}
	return nil
}

func (l *pollLink) buffered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.np == nil || l.fd < 0 {
		return 0
	}
	return l.np.Reader().Len()
}

// shut makes the kernel end both directions. netpoll sees that as a hang-up and closes; unlike its own Close, which lets the
// poller go on reading while a handler is at work, this stops the peer at once.
func (l *pollLink) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
	}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
