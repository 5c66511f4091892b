package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

func (a *app) transaction() *cobra.Command {
	return a.section("transaction", "List transactions that are not decided, and decide them",
		a.transactionList(), a.transactionEnd("commit", "Commit a transaction, for good: its message is delivered", true), a.transactionEnd("rollback", "Roll a transaction back, for good: its message is never delivered", false))
}

func (a *app) transactionList() *cobra.Command {
	var aside bool
	var most int
	cmd := &cobra.Command{
		Use:               "list",
		Short:             "List transactions that are not decided, those due first",
		Args:              names(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, _ []string) (*admin.Transactions, error) {
			return c.Transactions(ctx, aside, most)
		}, a.printTransactions),
	}
	cmd.Flags().BoolVar(&aside, "aside", false, "those that were moved aside, because their producers did not say how they ended")
	cmd.Flags().IntVar(&most, "limit", 100, "most transactions to list, 1 to 1000")
	mustComplete(cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions))
	return cmd
}

func (a *app) printTransactions(ts *admin.Transactions) error {
	if len(ts.Transactions) == 0 {
		fmt.Fprintln(a.Err, "There is no such transaction.")
		return nil
	}
	t := newTable("TRANSACTION", "TOPIC", "GROUP", "STORED", "CHECKS ", "NEXT CHECK", "ID")
	for _, x := range ts.Transactions {
		next, id := x.Due.UTC().Format(time.RFC3339), clean(x.ID)
		if x.Aside {
			next = "aside"
		}
		if x.Problem != "" {
			id = "cannot be read: " + clean(x.Problem)
		}
		t.add(strconv.FormatInt(x.Address, 10), clean(x.Topic), clean(x.Group), x.Stored.UTC().Format(time.RFC3339), count(int64(x.Checks)), next, id)
	}
	if err := t.write(a.Out); err != nil {
		return err
	}
	if n := len(ts.Transactions); n < ts.Total {
		fmt.Fprintf(a.Out, "%s of %s are shown; --limit shows more\n", count(int64(n)), count(int64(ts.Total)))
	}
	return nil
}

func (a *app) transactionEnd(use, short string, commit bool) *cobra.Command {
	return &cobra.Command{
		Use:               use + " TRANSACTION",
		Short:             short,
		Args:              names("the number of the TRANSACTION"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: ask(a, func(ctx context.Context, c *admin.Client, args []string) (*admin.TransactionEnded, error) {
			return c.EndTransaction(ctx, args[0], commit)
		}, func(e *admin.TransactionEnded) error {
			fmt.Fprintf(a.Out, "%d: %s\n", e.Address, clean(e.Outcome))
			return nil
		}),
	}
}
