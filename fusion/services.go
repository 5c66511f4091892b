package fusion

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/metaq/broker"
	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/notify"
	notifyserver "github.com/fusionmq/fusionmq/notify/server"
	"github.com/fusionmq/fusionmq/store"
)

// services are what runs; each is nil before its part has started, and stays nil when the configuration has it off.
type services struct {
	store      *store.Store
	maxMessage int64 // bytes of the largest body, on both front ends
	push       *notify.Service
	names      *nameserver.NameServer
	nameServer *server.Server // its listener
	broker     *broker.Broker
	notify     *notifyserver.Server // its listener is the Notify wire
	http       *httpapi.Server
	profiles   func() error

	background sync.WaitGroup // goroutines of the App itself
}

// startNameserver opens the embedded name server.
func (a *App) startNameserver(ctx context.Context) error {
	l, err := a.open(ctx, "nameserver")
	if l == nil {
		return err
	}
	ns, err := nameserver.New(nameserver.Config{Dir: filepath.Join(a.data, "namesrv"), Log: a.log})
	if err != nil {
		return err
	}
	a.nameServer, err = server.Serve(l, server.Config{Name: "nameserver", Handler: ns, Closed: ns.Closed, Log: a.log})
	if err != nil {
		ns.Close()
		return err
	}
	a.names = ns
	return nil
}

func (a *App) stopNameserver(ctx context.Context) error {
	if a.names == nil {
		return nil
	}
	err := a.nameServer.Shutdown(ctx)
	a.names.Close()
	return err
}

// startPull starts the broker, registers it, and opens its listeners.
func (a *App) startPull(ctx context.Context) error {
	c := &a.cfg.Config
	l, err := a.open(ctx, "broker")
	if l == nil {
		return err
	}
	fast, err := a.open(ctx, "fast")
	if err != nil {
		return err
	}
	conf := broker.Config{
		Name: c.Broker.Name, Cluster: c.Broker.Cluster,
		AdvertiseAddr: a.adv.registered(), StoreHost: a.adv.storeHost,
		MaxBodyBytes:       int(a.maxMessage),
		NoPropertyFilter:   !c.Broker.PropertyFilter,
		NoAutoCreateTopics: !c.Broker.AutoCreateTopics, NoAutoCreateGroups: !c.Broker.AutoCreateGroups,
		DefaultTopicQueues: int32(c.Broker.DefaultQueues),
		RegisterInterval:   c.Broker.RegisterInterval,
		MaxConns:           int(c.Broker.MaxConnections), IdleTimeout: c.Broker.IdleTimeout,
		CheckInterval: c.Broker.CheckInterval, MaxChecks: int(c.Broker.MaxChecks), RejectTransactions: !c.Broker.Transactions,
		Log: a.log,
	}
	if a.names != nil {
		conf.Registrars = append(conf.Registrars, broker.Embedded{NameServer: a.names})
	}
	for _, addr := range c.Broker.Nameservers {
		conf.Registrars = append(conf.Registrars, broker.NewRemote(addr, a.log))
	}
	b, err := broker.New(conf, a.store, a.data)
	if err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	for _, l := range []net.Listener{l, fast} {
		if l == nil {
			continue
		}
		if err := b.Serve(l); err != nil {
			return errors.Join(err, b.Stop(ctx))
		}
	}
	a.broker = b
	return nil
}

func (a *App) stopPull(ctx context.Context) error {
	if a.broker == nil {
		return nil
	}
	return a.broker.Stop(ctx)
}
