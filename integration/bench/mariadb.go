package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of sql.Open

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

const (
	lifeWriters = 256
	lifeBudget  = "message life, 1 KiB, owed and acknowledged, 256 writers, sync, against MariaDB insert and delete with flush_log_at_trx_commit=1"
)

// lifeTable is what the legacy system kept a message in.
const lifeTable = `CREATE TABLE notify_msg_00 (
  seq_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  msg_id BINARY(16) NOT NULL,
  topic VARCHAR(64) NOT NULL, message_type VARCHAR(64) NOT NULL,
  group_id VARCHAR(64) NOT NULL,
  target_group VARCHAR(64) NULL,
  flag INT NOT NULL DEFAULT 0,
  msg_version INT NOT NULL DEFAULT 1,
  body MEDIUMBLOB NOT NULL, body_size INT UNSIGNED NOT NULL,
  header MEDIUMTEXT NULL,
  committed TINYINT NOT NULL, send_once TINYINT NOT NULL DEFAULT 0,
  priority INT NOT NULL DEFAULT 4,
  delivery_count INT NOT NULL DEFAULT 0, check_count INT NOT NULL DEFAULT 0,
  time_to_live INT NOT NULL DEFAULT -1, dlq_time INT NOT NULL DEFAULT -1,
  post_timeout INT NOT NULL DEFAULT 10000, post_delay BIGINT NOT NULL DEFAULT 0,
  born_time BIGINT NOT NULL,
  gmt_create BIGINT NOT NULL,
  gmt_last_delivery BIGINT NULL, next_post_time BIGINT NOT NULL,
  publisher_host VARCHAR(128) NULL,
  fail_targets MEDIUMTEXT NULL,
  row_version INT NOT NULL DEFAULT 0,
  gmt_modified TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (seq_id), UNIQUE KEY uk_msg_id (msg_id),
  KEY idx_scan (committed, next_post_time, seq_id),
  KEY idx_topic (topic, message_type, gmt_create),
  KEY idx_modified (gmt_modified, seq_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8`

// lifeBudgets compares the life of a message in the store, as its own benchmark has measured it, with what the legacy system did in a database:
// a row inserted and deleted, a transaction each, by as many writers, on the same disk. A writer here goes on when its message is durable: its
// acknowledgement joins the next batch of operations, as in the push front end; how fast writers are that wait for it is printed beside.
func (b *bench) lifeBudgets(ours, awaited float64) {
	theirs, about, err := b.mariaDB()
	b.addLife(ours, theirs, about, err)
	if awaited > 0 && theirs > 0 {
		b.table.reported("the same where each writer waits until its acknowledgement is durable, too", quantity(awaited, "/s"), quantity(theirs, "/s"))
	}
}

func (b *bench) addLife(ours, theirs float64, about string, err error) {
	switch {
	case ours == 0:
		b.table.unmeasured(lifeBudget, "no result of BenchmarkBudgetLife")
	case err != nil:
		b.table.add(row{lifeBudget, quantity(ours, "/s"), "not measured: " + strings.Join(strings.Fields(err.Error()), " "), "", "not measured"})
	default:
		fmt.Println(about)
		b.table.atLeast(lifeBudget, ours, theirs, 50, "/s")
	}
}

// mariaDB runs a server with its defaults in a folder of its own and returns the rows that were inserted and deleted in a second, and what to print about it.
func (b *bench) mariaDB() (rate float64, about string, err error) {
	if err := installMariaDB(); err != nil {
		return 0, "", err
	}
	dir := filepath.Join(b.dir, "mariadb")
	defer os.RemoveAll(dir)
	me, err := user.Current()
	if err != nil {
		return 0, "", err
	}
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, "", err
	}
	if out, err := exec.Command("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--user="+me.Username, "--datadir="+data).CombinedOutput(); err != nil {
		return 0, "", fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	c, err := proc.Run(exec.Command(mariaDBServer(), "--no-defaults", "--user="+me.Username, "--datadir="+data, "--socket="+socket, "--pid-file="+filepath.Join(dir, "pid"),
		"--skip-networking", "--innodb-flush-log-at-trx-commit=1", fmt.Sprint("--max-connections=", lifeWriters+10)))
	if err != nil {
		return 0, "", err
	}
	defer c.Stop(time.Minute)
	if err := c.Listens("unix", socket, time.Minute); err != nil {
		return 0, "", fmt.Errorf("mariadbd: %w", err)
	}
	setup, err := sql.Open("mysql", "root@unix("+socket+")/")
	if err != nil {
		return 0, "", err
	}
	if _, err = setup.Exec("CREATE DATABASE notify_store_00"); err == nil {
		err = setup.QueryRow("SELECT CONCAT('MariaDB ', VERSION(), ', flush_log_at_trx_commit ', @@innodb_flush_log_at_trx_commit, ', doublewrite ', @@innodb_doublewrite, ', binlog ', @@log_bin)").Scan(&about)
	}
	if err := setup.Close(); err != nil {
		return 0, "", err
	}
	if err != nil {
		return 0, "", err
	}
	db, err := sql.Open("mysql", "root@unix("+socket+")/notify_store_00")
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = db.Close() }() // its server is stopped next
	db.SetMaxOpenConns(lifeWriters)
	db.SetMaxIdleConns(lifeWriters)
	if _, err := db.Exec(lifeTable); err != nil {
		return 0, "", err
	}
	before, err := proc.UsageOf(c.Pid())
	if err != nil {
		return 0, "", err
	}
	rate, lives, err := b.rowLives(db)
	if err != nil {
		return 0, "", err
	}
	after, err := proc.UsageOf(c.Pid())
	return rate, fmt.Sprintf("%s: %.0f us of its processor time for a row inserted and deleted", about, (after.CPU-before.CPU).Seconds()*1e6/float64(lives)), err
}

// rowLives has every connection insert and delete one row after the other and returns the best window's rate, as our benchmark counts its best round, and
// how many rows there were.
func (b *bench) rowLives(db *sql.DB) (best float64, lives int64, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var done atomic.Int64
	failed := make(chan error, lifeWriters)
	conns := make([]*sql.Conn, lifeWriters) // one after the other: a server takes only so many at once
	for i := range conns {
		if conns[i], err = db.Conn(ctx); err != nil {
			return 0, 0, err
		}
	}
	for _, c := range conns {
		wg.Go(func() {
			if err := rowLife(ctx, c, &done); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	wait := func(d time.Duration) error {
		select {
		case err := <-failed:
			return err
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(b.warm); err != nil {
		return 0, 0, err
	}
	for range b.runs {
		before, began := done.Load(), time.Now()
		if err := wait(b.window); err != nil {
			return 0, 0, err
		}
		best = max(best, float64(done.Load()-before)/time.Since(began).Seconds())
	}
	return best, done.Load(), nil
}

// rowLife is one connection's work. Every statement is a transaction of its own. What is prepared ends with the connection.
func rowLife(ctx context.Context, c *sql.Conn, done *atomic.Int64) error {
	defer func() { _ = c.Close() }() // its server is stopped next
	insert, err := c.PrepareContext(ctx, `INSERT INTO notify_msg_00 (msg_id, topic, message_type, group_id, body, body_size, header, committed, born_time, gmt_create, next_post_time, publisher_host)
		VALUES (?, 'Bench', 'TagA', 'S-bench', ?, ?, '', 1, ?, ?, ?, '127.0.0.1')`)
	if err != nil {
		return err
	}
	remove, err := c.PrepareContext(ctx, "DELETE FROM notify_msg_00 WHERE msg_id = ?")
	if err != nil {
		return err
	}
	body, id := randomBody(1024), make([]byte, 16)
	for ctx.Err() == nil {
		_, _ = rand.Read(id) // it never fails
		now := time.Now().UnixMilli()
		if _, err := insert.ExecContext(ctx, id, body, len(body), now, now, now); err != nil {
			return err
		}
		if _, err := remove.ExecContext(ctx, id); err != nil {
			return err
		}
		done.Add(1)
	}
	return nil
}

func mariaDBServer() string {
	if path, err := exec.LookPath("mariadbd"); err == nil {
		return path
	}
	return "/usr/sbin/mariadbd" // of no user's PATH
}

// installMariaDB installs Debian's server programs when they are missing. These packages start no service.
func installMariaDB() error {
	if _, err := os.Stat(mariaDBServer()); err == nil {
		if _, err := exec.LookPath("mariadb-install-db"); err == nil {
			return nil
		}
	}
	script := `sudo=; [ "$(id -u)" = 0 ] || sudo="sudo -n"
$sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server-core mariadb-client-core`
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-server-core cannot be installed: %w: %s", err, out)
	}
	return nil
}
