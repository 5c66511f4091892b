package fusion

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestAdvertise(t *testing.T) {
	n := network{
		lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "both.example":
				return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.7")}, nil
			case "six.example":
				return []netip.Addr{netip.MustParseAddr("2001:db8::1")}, nil
			}
			return nil, errors.New("no such host")
		},
		local: func() []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("198.51.100.4")}
		},
	}
	alone := network{local: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} }}
	for _, tc := range []struct {
		name         string
		on           network
		host, at     string
		shown, route string
		storeHost    string
		note         string
	}{
		{"all interfaces", n, "", "0.0.0.0:10911", "*:10911", "198.51.100.4:10911", "198.51.100.4:10911", ""},
		{"all interfaces, IPv6 form", n, "", "[::]:10911", "*:10911", "198.51.100.4:10911", "198.51.100.4:10911", ""},
		{"a machine without network", alone, "", "0.0.0.0:10911", "*:10911", "127.0.0.1:10911", "127.0.0.1:10911", ""},
		{"one interface", n, "", "127.0.0.1:20911", "127.0.0.1:20911", "127.0.0.1:20911", "127.0.0.1:20911", ""},
		{"one IPv6 interface", n, "", "[::1]:20911", "[::1]:20911", "[::1]:20911", "[::1]:20911", ""},
		{"a name with both", n, "both.example", "0.0.0.0:1", "both.example:1", "both.example:1", "192.0.2.7:1", ""},
		{"a name with IPv6 only", n, "six.example", "0.0.0.0:1", "six.example:1", "six.example:1", "[2001:db8::1]:1", ""},
		{"an address", n, "203.0.113.5", "127.0.0.1:1", "203.0.113.5:1", "203.0.113.5:1", "203.0.113.5:1", ""},
		{"a name that is known elsewhere only", n, "outside.example", "0.0.0.0:1", "outside.example:1", "outside.example:1", "198.51.100.4:1", "cannot be resolved here; offset ids carry 198.51.100.4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, note := tc.on.advertise(t.Context(), tc.host, netip.MustParseAddrPort(tc.at))
			if a.String() != tc.shown || a.addr() != tc.route || a.storeHost.String() != tc.storeHost || (note == "") != (tc.note == "") || !strings.Contains(note, tc.note) {
				t.Errorf("advertise(%q, %s) = %s, route %s, store host %s, note %q\nwant %s, %s, %s, %q", tc.host, tc.at, a, a.addr(), a.storeHost, note, tc.shown, tc.route, tc.storeHost, tc.note)
			}
		})
	}
}
