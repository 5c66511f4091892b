package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/apache"
)

// peers starts RocketMQ's processes beside ours, with one way of flushing at a time.
type peers struct {
	dir     string
	release *apache.Release
	err     error // why there is none
}

// errNoPeer is why nothing of a peer is measured that -peer does not name.
func errNoPeer(kind string) error { return fmt.Errorf("no peer asked for (PEER=%s)", kind) }

func newPeers(dir string) *peers {
	p := &peers{dir: dir}
	p.release, p.err = apache.Fetch("5.3.3", dir)
	return p
}

// start runs a name server and a broker with RocketMQ's own file sizes and returns when the broker answers. flush is ASYNC_FLUSH or SYNC_FLUSH.
func (p *peers) start(flush string) (t *target, stop func(), err error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	store := filepath.Join(p.dir, "store-"+flush)
	b, err := p.release.Start(store, apache.Options{NameServerHeap: "256m", Heap: "1g", Direct: "1g",
		Lines: []string{"flushDiskType=" + flush, "brokerRole=ASYNC_MASTER", "autoCreateTopicEnable=true"}})
	if err != nil {
		_ = os.RemoveAll(store)
		return nil, nil, err
	}
	stop = func() {
		b.Stop()
		_ = os.RemoveAll(store)
	}
	return &target{name: "RocketMQ 5.3.3", broker: b.Addr, pid: b.Pid(), speaks: remoting{}}, stop, nil
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
