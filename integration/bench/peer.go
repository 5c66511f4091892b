package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

// peers starts RocketMQ's processes beside ours, with one way of flushing at a time.
type peers struct {
	dir       string
	classpath string
	err       error // why there is none
}

// errNoPeer is why nothing of a peer is measured that -peer does not name.
func errNoPeer(kind string) error { return fmt.Errorf("no peer asked for (PEER=%s)", kind) }

func newPeers(dir string) *peers {
	p := &peers{dir: dir}
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			p.err = fmt.Errorf("%s is not installed", tool)
			return p
		}
	}
	_, file, _, _ := runtime.Caller(0)
	if p.err = os.MkdirAll(dir, 0o755); p.err != nil {
		return p
	}
	out := filepath.Join(dir, "classpath")
	cmd := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+out)
	cmd.Dir = filepath.Join(filepath.Dir(file), "peers")
	if text, err := cmd.CombinedOutput(); err != nil {
		p.err = fmt.Errorf("maven: %w\n%s", err, text)
		return p
	}
	b, err := os.ReadFile(out)
	p.classpath, p.err = strings.TrimSpace(string(b)), err
	return p
}

// java is one process of the peer; its output is kept for the error message.
type java struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

func (p *peers) java(name, heap, class string, args ...string) (*java, error) {
	home := filepath.Join(p.dir, name+"-home")
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		return nil, err
	}
	all := []string{"-Xms" + heap, "-Xmx" + heap, "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g", "-Duser.home=" + p.dir, "-Drmq.logback.configurationFile=none.xml",
		"--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED",
		"-cp", p.classpath, class}
	j := &java{cmd: exec.Command("java", append(all, args...)...), done: make(chan struct{})}
	j.cmd.Dir = p.dir
	j.cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+home)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = j.cmd.Wait() // its end is all that matters
		close(j.done)
	}()
	return j, nil
}

func (j *java) stop() {
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		_ = j.cmd.Process.Kill()
		<-j.done
	}
}

// freePort is a port that nothing listens on now, below the range of outgoing connections.
func freePort(from int) (int, error) {
	for p := from; p < 32000; p += 10 {
		ok := true
		for _, q := range []int{p - 2, p, p + 1} { // the broker takes both neighbours too
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", q))
			if err != nil {
				ok = false
				break
			}
			_ = l.Close()
		}
		if ok {
			return p, nil
		}
	}
	return 0, errors.New("no free port below 32000")
}

// start runs a name server and a broker with RocketMQ's own file sizes and returns when the broker is registered. flush is ASYNC_FLUSH or SYNC_FLUSH.
func (p *peers) start(flush string) (t *target, stop func(), err error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	var running []*java
	store := filepath.Join(p.dir, "store-"+flush)
	stop = func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
		_ = os.RemoveAll(store)
	}
	defer func() {
		if err != nil {
			for _, j := range running {
				select {
				case <-j.done:
					err = fmt.Errorf("%w\n%s", err, j.out.String())
				default:
				}
			}
			stop()
		}
	}()
	ns, err := freePort(27876)
	if err != nil {
		return nil, nil, err
	}
	port, err := freePort(28911)
	if err != nil {
		return nil, nil, err
	}
	nsConf, brokerConf := filepath.Join(p.dir, "namesrv.conf"), filepath.Join(p.dir, "broker.conf")
	lines := func(l ...string) []byte { return []byte(strings.Join(l, "\n") + "\n") }
	if err = os.WriteFile(nsConf, lines(fmt.Sprint("listenPort=", ns), "bindAddress=127.0.0.1", "kvConfigPath="+p.dir+"/kv.json", "configStorePath="+p.dir+"/namesrv.properties"), 0o644); err != nil {
		return nil, nil, err
	}
	if err = os.WriteFile(brokerConf, lines("brokerClusterName=DefaultCluster", "brokerName=broker-a", "brokerId=0", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1",
		fmt.Sprint("listenPort=", port), fmt.Sprint("namesrvAddr=127.0.0.1:", ns), "storePathRootDir="+store, "storePathCommitLog="+store+"/commitlog",
		"flushDiskType="+flush, "brokerRole=ASYNC_MASTER", "autoCreateTopicEnable=true"), 0o644); err != nil {
		return nil, nil, err
	}
	n, err := p.java("namesrv", "256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", nsConf)
	if err != nil {
		return nil, nil, err
	}
	running = append(running, n)
	time.Sleep(2 * time.Second) // the broker registers at its start and then every 30 s
	br, err := p.java("broker", "1g", "org.apache.rocketmq.broker.BrokerStartup", "-c", brokerConf)
	if err != nil {
		return nil, nil, err
	}
	running = append(running, br)
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(500 * time.Millisecond) {
		if addr, e := raw.Broker(fmt.Sprintf("127.0.0.1:%d", ns)); e == nil && addr != "" {
			return &target{name: "RocketMQ 5.3.3", broker: addr, pid: br.cmd.Process.Pid, speaks: remoting{}}, stop, nil
		}
		select {
		case <-br.done:
			return nil, nil, errors.New("the peer's broker ended")
		default:
		}
	}
	return nil, nil, errors.New("the peer's broker has not registered in a minute")
}

// warmJVM gives a JVM the load that its compiler needs before its figures count.
func (b *bench) warmJVM(t *target) error {
	deadline := time.Now().Add(60 * time.Second)
	quick := &bench{options: b.options}
	quick.runs, quick.window = 1, 10*time.Second
	for time.Now().Before(deadline) {
		if _, err := quick.pipelinedCell(t, 256, 1024, 0); err != nil {
			return err
		}
		if _, err := quick.waitingCell(t, 64, 1024, 0); err != nil {
			return err
		}
	}
	return nil
}
