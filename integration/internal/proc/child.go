package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Child is a running program of somebody else: a broker or a database that ours is compared with. It ends when we do, whatever ends us. Its methods may be
// called from any goroutine.
type Child struct {
	cmd    *exec.Cmd
	out    output
	exited chan struct{} // closed when the process is gone
}

// Run starts cmd, whose output it keeps for error messages.
func Run(cmd *exec.Cmd) (*Child, error) {
	c := &Child{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal comes when this thread ends, so it stays for as long as the process
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its end is all that matters
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Pid of the process.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Output is what the process has printed on both streams, the first and the last part of it when it is long.
func (c *Child) Output() string { return c.out.String() }

// Kill ends the process with SIGKILL and waits for its end.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only when it is gone already
	<-c.exited
}

// Stop ends the process with SIGTERM and waits for its end; after within it kills.
func (c *Child) Stop(within time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone already
	select {
	case <-c.exited:
	case <-time.After(within):
		c.Kill()
	}
}

// Listens waits until something accepts connections at an address; network is tcp or unix. It fails when the process ends before that, or after within.
func (c *Child) Listens(network, addr string, within time.Duration) error {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if conn, err := net.Dial(network, addr); err == nil {
			return conn.Close()
		}
		select {
		case <-c.exited:
			return fmt.Errorf("ended:\n%s", c.Output())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("nothing listens at %s after %s:\n%s", addr, within, c.Output())
}

// FreePort is a port of 127.0.0.1 below the range of outgoing connections that nothing listens on now, nor on its neighbours: a RocketMQ broker takes those
// too. It begins at random, so that two runs at once seldom choose the same before either listens.
func FreePort() (int, error) {
	const low, high = 20000, 32000
	for range 100 {
		p := low + 10*rand.IntN((high-low)/10) + 5
		free := true
		for _, q := range []int{p - 2, p, p + 1} {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", q))
			if err != nil {
				free = false
				break
			}
			_ = l.Close() // it was only looked at
		}
		if free {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", low, high)
}
