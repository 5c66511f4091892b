// Package proc builds and runs the programs under test as processes of their own: the tests of this module see the system from outside.
//
// [Build] gives the binaries, [Start] a running [Server]. Every server gets free ports and says on its readiness line which; nothing here
// waits without a bound, and a server that a test forgets is killed with the test.
package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartLimit is how long a start may take before [Start] gives up; recovery of a big log on a busy machine needs most of it.
const StartLimit = 60 * time.Second

// Programs are the paths of the binaries.
type Programs struct{ Server, Ctl string }

// Build compiles both programs of the working tree into dir. FUSIONMQ_BIN and FUSIONCTL_BIN name binaries to take instead.
func Build(dir string) (Programs, error) {
	p := Programs{Server: os.Getenv("FUSIONMQ_BIN"), Ctl: os.Getenv("FUSIONCTL_BIN")}
	for _, b := range []struct {
		out *string
		pkg string
	}{{&p.Server, "fusion/cmd/fusionmq"}, {&p.Ctl, "ops/cmd/fusionctl"}} {
		if *b.out != "" {
			continue
		}
		*b.out = filepath.Join(dir, filepath.Base(b.pkg))
		cmd := exec.Command("go", "build", "-o", *b.out, "./"+b.pkg)
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return p, nil
}

// root is the top of the repository, found from where this file was compiled.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// Server is a running process. Its methods may be called from any goroutine.
type Server struct {
	Dir  string            // the data directory
	Addr map[string]string // listener name to host:port, from the readiness line

	cmd    *exec.Cmd
	out    output
	exited chan struct{} // closed when the process is gone
	err    error         // of Wait; read after exited is closed
}

// ExitError tells that a server ended before it was ready.
type ExitError struct {
	Code   int
	Output string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("server ended with exit code %d before it was ready:\n%s", e.Code, e.Output)
}

// Names of the listeners that Start asks for, each on a free port of 127.0.0.1.
var listeners = []string{"nameserver", "broker", "notify", "http"}

// Start runs `bin server --data dir` on free loopback ports and returns when it serves. args are more flags; a later flag wins.
func Start(bin, dir string, args ...string) (*Server, error) {
	s, err := Launch(bin, dir, args...)
	if err != nil {
		return nil, err
	}
	deadline := time.NewTimer(StartLimit)
	defer deadline.Stop()
	select {
	case <-s.out.ready:
		s.Addr = s.out.addresses()
		return s, nil
	case <-s.exited:
		return nil, &ExitError{Code: s.cmd.ProcessState.ExitCode(), Output: s.Output()}
	case <-deadline.C:
		s.Kill()
		return nil, fmt.Errorf("server is not ready after %s:\n%s", StartLimit, s.Output())
	}
}

// Launch is Start without waiting; Addr stays empty.
func Launch(bin, dir string, args ...string) (*Server, error) {
	all := []string{"server", "--data", dir}
	for _, name := range listeners {
		all = append(all, "--"+name+"-addr", "127.0.0.1:0")
	}
	all = append(all, "--fast-addr", "off")
	cmd := exec.Command(bin, append(all, args...)...)
	s := &Server{Dir: dir, cmd: cmd, exited: make(chan struct{})}
	s.out.ready = make(chan struct{})
	cmd.Stderr = &s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// Pdeathsig is sent when the thread that started the process ends, so that thread stays for as long as the process does.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s.out.read(pipe)
		s.err = cmd.Wait()
		close(s.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return s, nil
}

// Pid of the process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Exited is closed when the process is gone.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Kill ends the process with SIGKILL and waits for its end.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // fails only when it is gone already
	<-s.exited
}

// Stop ends the process with SIGTERM and returns its exit code and how long that took; within bounds how long it waits before SIGKILL.
func (s *Server) Stop(within time.Duration) (code int, took time.Duration, err error) {
	start := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, 0, err
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode(), time.Since(start), nil
	case <-timer.C:
		s.Kill()
		return 0, time.Since(start), fmt.Errorf("still running %s after SIGTERM", within)
	}
}

// Wait returns the exit code when the process ends by itself within d.
func (s *Server) Wait(d time.Duration) (code int, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("still running after %s", d)
	}
}

// Output is what the process has printed on both streams, the first and the last part of it when it is long.
func (s *Server) Output() string { return s.out.String() }

// output collects both streams and watches standard output for the readiness line.
type output struct {
	mu    sync.Mutex
	head  bytes.Buffer
	tail  []byte
	line  string
	ready chan struct{} // closed after line is set
}

const keep = 64 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if room := keep - o.head.Len(); room > 0 {
		k := min(room, len(p))
		o.head.Write(p[:k])
		p = p[k:]
	}
	o.tail = append(o.tail, p...)
	if len(o.tail) > 2*keep {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keep:]...)
	}
	return n, nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == 0 {
		return o.head.String()
	}
	return o.head.String() + "\n...\n" + string(o.tail)
}

// read takes standard output to its end. The readiness line is `ready name=host:port ...`.
func (o *output) read(in io.Reader) {
	br := bufio.NewReader(in)
	seen := false
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			_, _ = o.Write([]byte(line))
			if !seen && strings.HasPrefix(line, "ready ") {
				seen = true
				o.mu.Lock()
				o.line = line
				o.mu.Unlock()
				close(o.ready)
			}
		}
		if err != nil {
			return
		}
	}
}

func (o *output) addresses() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	addr := map[string]string{}
	for _, f := range strings.Fields(o.line)[1:] {
		if name, at, ok := strings.Cut(f, "="); ok {
			addr[name] = at
		}
	}
	return addr
}

// Usage is what a process has used since its start.
type Usage struct {
	CPU            time.Duration // user and system
	RSS, Anonymous int64         // resident bytes; anonymous leaves out mapped files, which are page cache
}

// Usage reads /proc.
func (s *Server) Usage() (Usage, error) { return UsageOf(s.Pid()) }

// UsageOf reads the usage of any process of this machine.
func UsageOf(pid int) (Usage, error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	var u Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	u.CPU = time.Duration(user+system) * tick
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for l := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(l, ":")
		kib := func() int64 {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
		switch name {
		case "VmRSS":
			u.RSS = kib()
		case "RssAnon":
			u.Anonymous = kib()
		}
	}
	return u, nil
}
