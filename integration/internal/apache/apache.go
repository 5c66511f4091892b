// Package apache fetches and runs published Apache RocketMQ brokers, to be measured beside ours or to write and read a store directory that ours works on too.
// It needs Java and Maven.
//
// [Fetch] gives a [Release], [Release.Start] a running [Broker] with a name server of its own. Both processes end with the program that started them.
package apache

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// startLimit is how long a process may take until it listens; a broker recovers its store before that.
const startLimit = 2 * time.Minute

// Release is one version of the broker.
type Release struct {
	version, dir, classpath string
}

// Fetch gets a version from the Maven repository, or from what Maven keeps of it. dir is made and holds the configuration of what Start runs.
func Fetch(version, dir string) (*Release, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is not installed", tool)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	_, file, _, _ := runtime.Caller(0)
	out := filepath.Join(dir, "classpath")
	cmd := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Drocketmq.version="+version, "-Dmdep.outputFile="+out)
	cmd.Dir = filepath.Dir(file)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("maven: %w\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	return &Release{version, dir, strings.TrimSpace(string(b))}, err
}

// In is the same version with another place for the configuration, so that two brokers of it may run beside each other.
func (r *Release) In(dir string) (*Release, error) {
	return &Release{r.version, dir, r.classpath}, os.MkdirAll(dir, 0o755)
}

// Options of a broker.
type Options struct {
	NameServerHeap, Heap string   // of the two JVMs, as -Xmx has it
	Direct               string   // memory outside the heap, as -XX:MaxDirectMemorySize has it
	Lines                []string // more lines of broker.conf
	Java                 []string // more options of both JVMs
}

// Broker is a broker with its name server.
type Broker struct {
	Addr               string // host:port
	nameServer, broker *proc.Child
}

// Start runs a name server and a broker on a store directory and returns when the broker answers; it has recovered its store by then.
func (r *Release) Start(store string, o Options) (*Broker, error) {
	const bind = "bindAddress=127.0.0.1" // 4.9 does not know it
	ns, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	port, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	b := &Broker{Addr: fmt.Sprint("127.0.0.1:", port)}
	b.nameServer, err = r.java("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", ns, o.NameServerHeap, o,
		fmt.Sprint("listenPort=", ns), bind, "kvConfigPath="+r.dir+"/kv.json", "configStorePath="+r.dir+"/namesrv.properties")
	if err != nil {
		return nil, err
	}
	b.broker, err = r.java("broker", "org.apache.rocketmq.broker.BrokerStartup", port, o.Heap, o,
		append([]string{"brokerClusterName=DefaultCluster", "brokerName=broker-a", "brokerId=0", "brokerIP1=127.0.0.1", bind, fmt.Sprint("listenPort=", port),
			fmt.Sprint("namesrvAddr=127.0.0.1:", ns), "storePathRootDir=" + store, "storePathCommitLog=" + store + "/commitlog"}, o.Lines...)...)
	if err != nil {
		b.nameServer.Kill()
		return nil, err
	}
	return b, nil
}

// java runs one class with a configuration file and returns when it listens on its port.
func (r *Release) java(name, class string, port int, heap string, o Options, conf ...string) (*proc.Child, error) {
	home := filepath.Join(r.dir, name+"-home")
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		return nil, err
	}
	// 4.9 reads its log configuration from here; 5.3 starts without one.
	if err := os.WriteFile(filepath.Join(home, "conf", "logback_"+name+".xml"), []byte(`<configuration><root level="ERROR"/></configuration>`), 0o644); err != nil {
		return nil, err
	}
	file := filepath.Join(r.dir, name+".conf")
	if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	args := []string{"-Xms" + heap, "-Xmx" + heap, "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=" + o.Direct, "-Duser.home=" + r.dir, "-Drmq.logback.configurationFile=none.xml",
		"--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED"}
	cmd := exec.Command("java", append(append(args, o.Java...), "-cp", r.classpath, class, "-c", file)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+home)
	c, err := proc.Run(cmd)
	if err == nil {
		if err = c.Listens("tcp", fmt.Sprint("127.0.0.1:", port), startLimit); err != nil {
			c.Kill()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, r.version, err)
	}
	return c, nil
}

// Pid of the broker.
func (b *Broker) Pid() int { return b.broker.Pid() }

// Stop ends both processes, the broker in its own time.
func (b *Broker) Stop() {
	b.broker.Stop(time.Minute)
	b.nameServer.Stop(time.Minute)
}

// Kill ends both with SIGKILL: the broker gets no time to close anything.
func (b *Broker) Kill() {
	b.broker.Kill()
	b.nameServer.Kill()
}
