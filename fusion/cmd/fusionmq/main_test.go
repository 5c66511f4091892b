package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fusionmq": main})
}

// TestScripts runs testdata/*.txt. Beside the usual commands there are:
//
//	server NAME ARGS...          starts `fusionmq server ARGS...` on free ports; when it is ready, $NAME_http and so on are its listeners
//	signal NAME SIGNAL [CODE]    sends TERM, INT, HUP or KILL; with CODE waits for the end and compares the exit code
//	output NAME TEXT             checks that what NAME has printed so far contains TEXT; after HUP it waits for it
//	[!] get URL TEXT             asks by HTTP and checks that the answer contains TEXT
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": cmdServer, "signal": cmdSignal, "output": cmdOutput, "get": cmdGet,
		},
	})
}

// process is a server that a script has started.
type process struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out strings.Builder
	end chan struct{} // closed when it has ended
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

var processes sync.Map // *testscript.TestScript and name to *process

type processKey struct {
	ts   *testscript.TestScript
	name string
}

func find(ts *testscript.TestScript, name string) *process {
	p, ok := processes.Load(processKey{ts, name})
	if !ok {
		ts.Fatalf("no server %s", name)
	}
	return p.(*process)
}

const patience = 2 * time.Minute // for what takes milliseconds on an idle machine: under the race detector a start is a second of CPU

func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	name, args := args[0], args[1:]
	free := []string{"server", "--nameserver-addr", "127.0.0.1:0", "--broker-addr", "127.0.0.1:0", "--notify-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}
	bin, err := exec.LookPath("fusionmq") // the test binary under another name, put in PATH by testscript.Main
	ts.Check(err)
	p := &process{cmd: exec.Command(bin, append(free, args...)...), end: make(chan struct{})}
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Env = append(os.Environ(), "FUSIONMQ_STORE_SEGMENT_SIZE=16MiB")
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	ts.Defer(func() { _ = p.cmd.Process.Kill(); <-p.end })
	processes.Store(processKey{ts, name}, p)
	ready := make(chan string, 1)
	go func() {
		defer close(p.end)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			_, _ = io.WriteString(p, sc.Text()+"\n")
			if strings.HasPrefix(sc.Text(), "ready ") {
				ready <- sc.Text()
			}
		}
		_ = p.cmd.Wait()
	}()
	select {
	case line := <-ready:
		for _, word := range strings.Fields(line)[1:] {
			listener, addr, _ := strings.Cut(word, "=")
			ts.Setenv(name+"_"+listener, addr)
		}
	case <-p.end:
		ts.Fatalf("server %s ended: %s", name, p.printed())
	case <-time.After(patience):
		ts.Fatalf("server %s is not ready: %s", name, p.printed())
	}
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	p := find(ts, args[0])
	s := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(p.cmd.Process.Signal(s))
	if len(args) < 3 {
		return
	}
	select {
	case <-p.end:
	case <-time.After(patience):
		ts.Fatalf("server %s does not end: %s", args[0], p.printed())
	}
	if code := strconv.Itoa(p.cmd.ProcessState.ExitCode()); code != args[2] {
		ts.Fatalf("server %s ended with %s, want %s: %s", args[0], code, args[2], p.printed())
	}
}

func cmdOutput(ts *testscript.TestScript, neg bool, args []string) {
	p := find(ts, args[0])
	for end := time.Now().Add(patience); !strings.Contains(p.printed(), args[1]); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("server %s did not print %q but:\n%s", args[0], args[1], p.printed())
		}
	}
}

func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	resp, err := http.Get(args[0])
	if neg {
		if err == nil {
			_ = resp.Body.Close()
			ts.Fatalf("GET %s = %d, want no answer", args[0], resp.StatusCode)
		}
		return
	}
	ts.Check(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if !strings.Contains(string(b), args[1]) {
		ts.Fatalf("GET %s = %s, want it to contain %q", args[0], b, args[1])
	}
}
