package fusion

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// advertised is what clients are told to connect to for the broker.
type advertised struct {
	host string // name or address in routes
	port uint16
	// follow says that the embedded name server puts the address by which a client came in place of host: nobody said what clients can
	// reach, but what reached one listener reaches the other.
	follow bool
	// storeHost is the same as an address: part of every message's offset id.
	storeHost netip.AddrPort
}

// String is for people: * stands for the address by which a client came, and nothing for a broker that is off.
func (a advertised) String() string {
	if a.port == 0 {
		return ""
	}
	host := a.host
	if a.follow {
		host = "*"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(a.port)))
}

// registered is what the broker tells name servers: without a host when the name server puts its own there.
func (a advertised) registered() string {
	if a.follow {
		return net.JoinHostPort("", strconv.Itoa(int(a.port)))
	}
	return a.addr()
}

// addr is host:port of the broker as far as this machine knows.
func (a advertised) addr() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// network is what the choice of an address asks of the machine.
type network struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	local  func() []netip.Addr // addresses of this machine
}

func machine() network {
	return network{
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		local: func() (out []netip.Addr) {
			addrs, _ := net.InterfaceAddrs() // none: loopback is left
			for _, a := range addrs {
				if n, ok := a.(*net.IPNet); ok {
					if ip, ok := netip.AddrFromSlice(n.IP); ok {
						out = append(out, ip.Unmap())
					}
				}
			}
			return out
		},
	}
}

// advertise chooses what clients are told. host is advertise-host, "" when nobody set it; at is where the broker listens. note is worth
// a line in the log, "" when all is well.
func (n network) advertise(ctx context.Context, host string, at netip.AddrPort) (a advertised, note string) {
	a.port = at.Port()
	switch {
	case host != "":
		a.host = host
		ip, err := n.resolve(ctx, host)
		if err != nil {
			ip = n.reachable()
			note = fmt.Sprintf("advertise-host cannot be resolved here; offset ids carry %s instead", ip)
		}
		a.storeHost = netip.AddrPortFrom(ip, a.port)
	case at.Addr().IsUnspecified():
		ip := n.reachable()
		a.host, a.follow = ip.String(), true
		a.storeHost = netip.AddrPortFrom(ip, a.port)
	default:
		a.host = at.Addr().String()
		a.storeHost = at
	}
	return a, note
}

// resolve gives the address of a host, an IPv4 one when it has any: old clients cannot read others in an offset id.
func (n network) resolve(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone(""), nil
	}
	ips, err := n.lookup(ctx, host)
	if err != nil {
		return netip.Addr{}, err
	}
	return prefer4(ips)
}

func prefer4(ips []netip.Addr) (netip.Addr, error) {
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	if len(ips) == 0 {
		return netip.Addr{}, fmt.Errorf("no address")
	}
	return ips[0].WithZone(""), nil
}

// reachable is an address of this machine that others may reach; loopback when it has no other.
func (n network) reachable() netip.Addr {
	var global []netip.Addr
	for _, ip := range n.local() {
		if ip.IsGlobalUnicast() {
			global = append(global, ip)
		}
	}
	if ip, err := prefer4(global); err == nil {
		return ip
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
