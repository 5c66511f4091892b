package fusion

import (
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// An operator sees what is not decided, whether producers are asked or not, and can decide it, once and for good.
func TestTransactionsOfAnOperator(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	v := (*adminView)(a)
	if err := a.store.Topics().Put(meta.DefaultTopic("orders")); err != nil {
		t.Fatal(err)
	}
	half := func(id string) int64 {
		t.Helper()
		var rs [1]store.Result
		a.store.Append([]store.Message{{Topic: "orders", Queue: 2, Body: []byte("body"), Half: true,
			Properties: []byte("PGROUP\x01billing\x02UNIQ_KEY\x01" + id + "\x02KEYS\x01k\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01900\x02")}}, rs[:])
		if rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
		if err := a.store.WaitApplied(t.Context(), rs[0].Address); err != nil {
			t.Fatal(err)
		}
		return rs[0].Address
	}
	asked, aside, more := half("ASKED"), half("ASIDE"), half("MORE")
	if err := a.store.SetHalvesAside([]int64{aside}); err != nil {
		t.Fatal(err)
	}
	if err := a.store.WaitApplied(t.Context(), a.store.Bounds().Max-1); err != nil {
		t.Fatal(err)
	}
	var ts httpapi.Transactions
	get(t, a, "/api/v1/transactions?limit=1", &ts)
	if len(ts.Transactions) != 1 || ts.Total != 2 {
		t.Fatalf("%+v", ts)
	}
	x := ts.Transactions[0]
	if x.Address != asked || x.Topic != "orders" || x.Queue != 2 || x.Group != "billing" || x.ID != "ASKED" || x.Keys != "k" || x.Bytes != 4 || x.Checks != 0 || x.Aside || x.Problem != "" || x.Due.Sub(x.Stored).Seconds() != 900 {
		t.Errorf("%+v", x)
	}
	get(t, a, "/api/v1/transactions?aside=true", &ts)
	if len(ts.Transactions) != 1 || ts.Total != 1 || ts.Transactions[0].Address != aside || !ts.Transactions[0].Aside || ts.Transactions[0].ID != "ASIDE" {
		t.Errorf("%+v", ts)
	}
	for _, tc := range []struct {
		address, outcome string
		want             int // status of the refusal; 0: none
	}{
		{strconv.FormatInt(aside, 10), "perhaps", http.StatusBadRequest},
		{strconv.FormatInt(aside, 10), "commit", 0},
		{strconv.FormatInt(aside, 10), "commit", 0},
		{strconv.FormatInt(aside, 10), "rollback", http.StatusConflict},
		{strconv.FormatInt(more, 10), "rollback", 0},
		{strconv.FormatInt(aside+1, 10), "commit", http.StatusNotFound},
		{"99999999999", "commit", http.StatusNotFound},
		{"-1", "commit", http.StatusNotFound},
		{"first", "commit", http.StatusNotFound},
	} {
		e, err := v.EndTransaction(t.Context(), tc.address, httpapi.TransactionEnd{Outcome: tc.outcome})
		var p *httpapi.Problem
		if tc.want == 0 && (err != nil || e.Outcome != tc.outcome || strconv.FormatInt(e.Address, 10) != tc.address) || tc.want != 0 && (!errors.As(err, &p) || p.Status != tc.want) {
			t.Errorf("%s of %s: %+v, %v, want status %d", tc.outcome, tc.address, e, err, tc.want)
		}
	}
	if o := a.store.Half(asked).Outcome; o != state.Undecided {
		t.Errorf("the other one is %v", o)
	}
	if q := a.store.Queue("orders", 2, false); q == nil || q.Next() != 1 {
		t.Error("what was committed is not in its queue")
	}
	if get(t, a, "/api/v1/transactions?aside=true", &ts); len(ts.Transactions) != 0 || ts.Transactions == nil {
		t.Errorf("%+v", ts)
	}
}
