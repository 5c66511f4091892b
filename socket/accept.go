package socket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options of Serve.
type Options struct {
	// Open is called for each connection that was accepted, before anything is read from it; nil refuses it, and it is closed.
	// Calls do not overlap. It must not block. c may be used from here on.
	Open func(c *Conn) Handler
	// Failed is told that no connection can be accepted (no descriptors, no memory) and when it is tried again; those that come
	// wait in the kernel's queue meanwhile. May be nil.
	Failed func(err error, retry time.Duration)
	// Writes counts the system calls that wrote, of all connections. May be nil.
	Writes *atomic.Uint64
}

// Acceptor accepts the connections of one listener, until Close.
type Acceptor struct {
	o       Options
	ln      net.Listener
	file    *os.File // a duplicate of the listener's descriptor
	raw     syscall.RawConn
	closing chan struct{}
	ended   chan struct{}
}

// Serve accepts from a TCP listener, which it owns from then on unless it fails. Connections are not wrapped in package net, whose
// poller would hold them as well.
func Serve(ln net.Listener, o Options) (*Acceptor, error) {
	l, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("socket: %T is not a TCP listener", ln)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// A net.Listener's RawConn cannot wait, that of a non-blocking os.File can.
	fd := -1
	if cerr := raw.Control(func(l uintptr) { fd, err = unix.FcntlInt(l, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("socket: duplicate the listener: %w", err)
	}
	a := &Acceptor{o: o, ln: ln, file: os.NewFile(uintptr(fd), "listener"), closing: make(chan struct{}), ended: make(chan struct{})}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		a.file.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	go a.loop()
	return a, nil
}

// Close stops accepting and returns when Open will not be called again. Connections live on. Call it once.
func (a *Acceptor) Close() {
	close(a.closing)
	_ = a.ln.Close()
	_ = a.file.Close() // ends the accept in progress
	<-a.ended
}

func (a *Acceptor) loop() {
	defer close(a.ended)
	var pause time.Duration
	for {
		fd, peer, err := a.accept()
		if err == nil {
			pause = 0
			a.open(fd, peer)
			continue
		}
		select {
		case <-a.closing:
			return
		default:
		}
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if a.o.Failed != nil {
			a.o.Failed(err, pause)
		}
		select {
		case <-time.After(pause):
		case <-a.closing:
			return
		}
	}
}

// accept waits for a connection and returns its non-blocking descriptor.
func (a *Acceptor) accept() (fd int, peer unix.Sockaddr, err error) {
	rerr := a.raw.Read(func(l uintptr) bool {
		fd, peer, err = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return -1, nil, rerr
	}
	return fd, peer, err
}

// open makes a Conn of an accepted descriptor.
func (a *Acceptor) open(fd int, peer unix.Sockaddr) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // fails only for a socket that is gone
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	c := &Conn{remote: addrPort(peer), writes: a.o.Writes}
	if sa, err := unix.Getsockname(fd); err == nil {
		c.local = addrPort(sa)
	}
	c.mu.fd = fd
	if c.host = a.o.Open(c); c.host == nil {
		c.mu.Lock() // Open may have given c away
		c.mu.fd = -1
		c.mu.Unlock()
		_ = unix.Close(fd)
		return
	}
	c.register(fd)
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
