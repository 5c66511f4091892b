package broker

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestReadsGoOnWhenNewGroupsCannotBeWritten(t *testing.T) {
	var full atomic.Bool
	e := start(t, func(_ *Config, o *store.Options) {
		o.FS = vfs.Intercept(vfs.OS, func(op vfs.Op) error {
			if full.Load() && strings.Contains(op.Name, "config/") && op.Kind != "read" {
				return syscall.ENOSPC
			}
			return nil
		})
	})
	e.topic("T", 1)
	c := e.dial()
	c.sent(message{topic: "T", body: "kept"})
	full.Store(true)
	if r := c.pull(pullReq{topic: "T", group: "New", sub: "*"}); r.Code != remoting.RespSuccess {
		t.Errorf("pull of a new group: code %d %s, want 0", r.Code, r.Remark)
	}
	if r := c.beat("c@1", "Newer", false, sub("T", "*", 1)); r.Code != remoting.RespSuccess {
		t.Errorf("heartbeat of a new group: code %d %s, want 0", r.Code, r.Remark)
	}
	if r := c.call(remoting.ReqGetConsumerListByGroup, nil, "consumerGroup", "Newer"); r.Code != remoting.RespSuccess {
		t.Errorf("members of the new group: code %d %s, want 0", r.Code, r.Remark)
	}
	full.Store(false)
	c.beat("c@1", "Newer", false, sub("T", "*", 1))
	if e.store.Groups().Get("Newer") == nil || e.store.Topics().Get("%RETRY%Newer") == nil {
		t.Error("the group and its retry topic are not made when there is room again")
	}
}
