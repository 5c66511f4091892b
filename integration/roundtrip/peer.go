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
)

// peer is one version of the published broker.
type peer struct {
	version, dir, classpath string
}

// newPeer fetches a version.
func newPeer(version, dir string) (*peer, error) {
	_, file, _, _ := runtime.Caller(0)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "classpath")
	cmd := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+out)
	cmd.Dir = filepath.Join(filepath.Dir(file), "peers", version)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("maven: %w\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	return &peer{version, dir, strings.TrimSpace(string(b))}, err
}

// running is a broker with its name server.
type running struct {
	addr  string
	javas []*java
}

// stop ends both; with kill the broker gets no time to close anything.
func (r *running) stop(kill bool) {
	for i := len(r.javas) - 1; i >= 0; i-- {
		j := r.javas[i]
		if kill {
			_ = j.cmd.Process.Kill() // fails only when it is gone already
			<-j.done
			continue
		}
		_ = j.cmd.Process.Signal(syscall.SIGTERM) // as above
		select {
		case <-j.done:
		case <-time.After(60 * time.Second):
			_ = j.cmd.Process.Kill() // as above
			<-j.done
		}
	}
}

// java is one process; its output is kept for the error message.
type java struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

func (p *peer) java(name, heap, class string, args ...string) (*java, error) {
	home := filepath.Join(p.dir, name+"-home")
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		return nil, err
	}
	// 4.9 reads its log configuration from here; 5.3 starts without one.
	if err := os.WriteFile(filepath.Join(home, "conf", "logback_"+name+".xml"), []byte(`<configuration><root level="ERROR"/></configuration>`), 0o644); err != nil {
		return nil, err
	}
	all := []string{"-Xms" + heap, "-Xmx" + heap, "-XX:MaxDirectMemorySize=512m", "-Duser.home=" + p.dir, "-Drmq.logback.configurationFile=none.xml",
		"--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED",
		"-cp", p.classpath, class}
	j := &java{cmd: exec.Command("java", append(all, args...)...), done: make(chan struct{})}
	j.cmd.Dir = p.dir
	j.cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+home)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = j.cmd.Wait() // its end is all that matters
		close(j.done)
	}()
	return j, nil
}

// start runs a name server and a broker on a store directory and returns when the broker answers.
func (p *peer) start(store string) (*running, error) {
	runtime.LockOSThread() // who starts a process that dies with its thread must not lose the thread
	ns, err := freePort(25876)
	if err != nil {
		return nil, err
	}
	port, err := freePort(26911)
	if err != nil {
		return nil, err
	}
	conf := func(name string, lines ...string) (string, error) {
		file := filepath.Join(p.dir, name)
		return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	bind := "bindAddress=127.0.0.1" // 4.9 does not know it
	nsConf, err := conf("namesrv.conf", fmt.Sprint("listenPort=", ns), bind, "kvConfigPath="+p.dir+"/kv.json", "configStorePath="+p.dir+"/namesrv.properties")
	if err != nil {
		return nil, err
	}
	brokerConf, err := conf("broker.conf", "brokerClusterName=DefaultCluster", "brokerName=broker-a", "brokerId=0", "brokerIP1=127.0.0.1", bind,
		fmt.Sprint("listenPort=", port), fmt.Sprint("namesrvAddr=127.0.0.1:", ns), "storePathRootDir="+store, "storePathCommitLog="+store+"/commitlog",
		fmt.Sprint("mappedFileSizeCommitLog=", segments), "maxHashSlotNum=10000", "maxIndexNum=40000", "fileReservedTime=72", "waitTimeMillsInSendQueue=20000")
	if err != nil {
		return nil, err
	}
	r := &running{addr: fmt.Sprint("127.0.0.1:", port)}
	for _, x := range []struct {
		name, heap, class, conf string
		port                    int
	}{{"namesrv", "128m", "org.apache.rocketmq.namesrv.NamesrvStartup", nsConf, ns}, {"broker", "512m", "org.apache.rocketmq.broker.BrokerStartup", brokerConf, port}} {
		j, err := p.java(x.name, x.heap, x.class, "-c", x.conf)
		if err != nil {
			r.stop(true)
			return nil, err
		}
		r.javas = append(r.javas, j)
		if err := j.answers(x.port); err != nil {
			r.stop(true)
			return nil, fmt.Errorf("%s of %s: %w\n%s", x.name, p.version, err, j.out.String())
		}
	}
	return r, nil
}

// answers waits until a port is open.
func (j *java) answers(port int) error {
	for deadline := time.Now().Add(120 * time.Second); time.Now().Before(deadline); {
		if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			return c.Close()
		}
		select {
		case <-j.done:
			return errors.New("ended")
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("does not answer within two minutes")
}

// freePort is a port that nothing listens on now, nor on its neighbours, which a broker takes too.
func freePort(from int) (int, error) {
	for p := from; p < 32000; p += 10 {
		ok := true
		for _, q := range []int{p - 2, p, p + 1} {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", q))
			if err != nil {
				ok = false
				break
			}
			_ = l.Close() // it was only looked at
		}
		if ok {
			return p, nil
		}
	}
	return 0, errors.New("no free port below 32000")
}
