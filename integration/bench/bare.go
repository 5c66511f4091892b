package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The bare servers are what the same bytes cost without a broker: frames of 4 bytes length and a body over TCP, in a process of their own
// like the broker. They are this program again, started with bareCommand.
const bareCommand = "bare-server"

const (
	bareEcho = "echo" // answers each frame with itself; a burst that has arrived is answered with one write
	barePush = "push" // pushes frames of pushSize under a credit window, pushBatch of them a write
	bareIdle = "idle" // accepts and reads, one goroutine a connection
)

const (
	pushSize   = 1024
	pushBatch  = 32
	pushWindow = 1024 // messages that may be unacknowledged on a connection
)

// bareMain is the child process: it prints its address and serves until its standard input ends.
func bareMain(kind string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		switch kind {
		case bareEcho:
			go echo(c)
		case barePush:
			go pushFrames(c)
		case bareIdle:
			go func() {
				var one [1]byte
				_, _ = c.Read(one[:])
			}()
		}
	}
}

func echo(c net.Conn) {
	defer c.Close()
	br, bw := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	var buf []byte
	for {
		frame, err := readFrame(br, buf)
		if err != nil {
			return
		}
		buf = frame
		if _, err := bw.Write(frame); err != nil {
			return
		}
		if br.Buffered() == 0 && bw.Flush() != nil {
			return
		}
	}
}

// readFrame returns one frame with its length word, in buf when it fits.
func readFrame(br *bufio.Reader, buf []byte) ([]byte, error) {
	head, err := br.Peek(4)
	if err != nil {
		return nil, err
	}
	n := 4 + int(binary.BigEndian.Uint32(head))
	if n > 1<<20 {
		return nil, errors.New("frame too large")
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err = io.ReadFull(br, buf[:n])
	return buf[:n], err
}

// pushFrames writes frames as long as there is credit; each 4 bytes from the client are credits.
func pushFrames(c net.Conn) {
	defer c.Close()
	credits := make(chan int, 1024)
	go func() {
		defer close(credits)
		br := bufio.NewReader(c)
		var b [4]byte
		for {
			if _, err := io.ReadFull(br, b[:]); err != nil {
				return
			}
			credits <- int(binary.BigEndian.Uint32(b[:]))
		}
	}()
	one := make([]byte, 4+pushSize)
	binary.BigEndian.PutUint32(one, pushSize)
	batch := make([]byte, 0, pushBatch*len(one))
	for range pushBatch {
		batch = append(batch, one...)
	}
	have := 0
	for {
		for have == 0 || len(credits) > 0 {
			n, ok := <-credits
			if !ok {
				return
			}
			have += n
		}
		n := min(have, pushBatch)
		if _, err := c.Write(batch[:n*len(one)]); err != nil {
			return
		}
		have -= n
	}
}

// bare is a running bare server.
type bare struct {
	addr string
	cmd  *exec.Cmd
	in   io.WriteCloser
}

func startBare(kind string) (*bare, error) {
	cmd := exec.Command("/proc/self/exe", bareCommand, kind)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return &bare{addr: strings.TrimSpace(line), cmd: cmd, in: in}, nil
}

func (s *bare) stop() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

// echoLatency sends frames of size at rate a second for d and returns the p99 of their round trips.
func echoLatency(addr string, rate float64, size int, d time.Duration) (p50, p99 time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	var h histogram
	var wg sync.WaitGroup
	var sent atomic.Int64
	wg.Go(func() {
		br := bufio.NewReaderSize(c, 64<<10)
		var buf []byte
		for {
			f, err := readFrame(br, buf)
			if err != nil {
				return
			}
			buf = f
			h.add(time.Duration(time.Now().UnixNano() - int64(binary.BigEndian.Uint64(f[4:]))))
			if end := sent.Load(); end > 0 && h.count() == end {
				return
			}
		}
	})
	frame := make([]byte, 4+size)
	binary.BigEndian.PutUint32(frame, uint32(size))
	n, err := paced(rate, d, func() error {
		binary.BigEndian.PutUint64(frame[4:], uint64(time.Now().UnixNano()))
		_, err := c.Write(frame)
		return err
	})
	sent.Store(n)
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	wg.Wait()
	return h.quantile(0.5), h.quantile(0.99), err
}

// paced calls f at rate a second for d and returns how often. When it is late it catches up in a burst, as real producers do.
func paced(rate float64, d time.Duration, f func() error) (n int64, err error) {
	start := time.Now()
	for {
		since := time.Since(start)
		if since >= d {
			return n, nil
		}
		due := int64(since.Seconds() * rate)
		for ; n < due; n++ {
			if err := f(); err != nil {
				return n, err
			}
		}
		next := time.Duration(float64(n+1) / rate * float64(time.Second))
		time.Sleep(max(next-time.Since(start), 50*time.Microsecond))
	}
}

// barePushRate receives total frames over conns connections and returns frames a second.
func barePushRate(addr string, conns int, total int64) (float64, error) {
	var got atomic.Int64
	var wg sync.WaitGroup
	all := make([]net.Conn, 0, conns)
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		all = append(all, c)
	}
	start := time.Now()
	for _, c := range all {
		wg.Go(func() {
			br := bufio.NewReaderSize(c, 256<<10)
			var credit [4]byte
			grant := func(n uint32) bool {
				binary.BigEndian.PutUint32(credit[:], n)
				_, err := c.Write(credit[:])
				return err == nil
			}
			if !grant(pushWindow) {
				return
			}
			var buf []byte
			for n := uint32(1); ; n++ {
				f, err := readFrame(br, buf)
				if err != nil {
					return
				}
				buf = f
				if got.Add(1) >= total {
					for _, o := range all {
						_ = o.SetDeadline(time.Now()) // everyone stops
					}
					return
				}
				if n%pushBatch == 0 && !grant(pushBatch) {
					return
				}
			}
		})
	}
	wg.Wait()
	if n := got.Load(); n < total {
		return 0, fmt.Errorf("bare push: %d of %d frames", n, total)
	}
	return float64(total) / time.Since(start).Seconds(), nil
}
