package keyed_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// TestSteps follows docs/storage.md: after each step its command passes, though the calls
// of later steps fail, and tests something.
func TestSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the suite once more, step by step")
	}
	doc, err := os.ReadFile("../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^go test -run '([^']+)'$`).FindAllStringSubmatch(string(doc), -1)
	if len(commands) != lastStep {
		t.Fatalf("docs/storage.md has %d commands, want one for each of the steps 1 to %d",
			len(commands), lastStep)
	}
	for i, command := range commands {
		step := i + 1
		t.Run(strconv.Itoa(step), func(t *testing.T) {
			t.Parallel()
			cases := strings.Replace(command[1], "TestStorage", "TestStep", 1)
			cmd := exec.Command(os.Args[0], "-test.run", cases, "-test.v")
			cmd.Env = append(os.Environ(), "OJS_STEP="+strconv.Itoa(step))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("step %d runs a case that fails, or needs a call of a later step: name the cases in its command\n%s\n%s", step, command[1], failures(out))
			}
			for _, pattern := range strings.FieldsFunc(cases,
				func(r rune) bool { return strings.ContainsRune("/()|$", r) }) {
				if !regexp.MustCompile(`--- PASS: \S*` + pattern).Match(out) {
					t.Errorf("step %d names %s, and no case of that name passes", step, pattern)
				}
			}
		})
	}
}

// TestQuotes holds that docs/storage.md quotes sentences that the contract has.
func TestQuotes(t *testing.T) {
	files, err := filepath.Glob("../../storage/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var contract strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := slashes.ReplaceAllString(string(text), "")
		said = strings.Join(strings.Fields(said), " ")
		contract.WriteString(tags.ReplaceAllString(said, ""))
	}
	doc, err := os.ReadFile("../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(doc), "## By hand: the twelve steps")
	steps, _, _ = strings.Cut(steps, "\n## ")
	quotes := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(steps, -1)
	if len(quotes) < 20 {
		t.Errorf("docs/storage.md quotes %d sentences", len(quotes))
	}
	for _, q := range quotes {
		sentence := strings.TrimRight(strings.Join(strings.Fields(q[1]), " "), ".,")
		if !strings.Contains(contract.String(), sentence) {
			t.Errorf("docs/storage.md quotes what package storage does not say: %s", sentence)
		}
	}
}

// slashes begin the lines of a comment.
var slashes = regexp.MustCompile(`(?m)^\s*//`)

// tags name the cases that prove a sentence of the contract.
var tags = regexp.MustCompile(` \[[a-z]+-[0-9]+(, [a-z]+-[0-9]+)*\]`)

// TestStep is the suite of a step, for TestSteps.
func TestStep(t *testing.T) {
	if step() > lastStep {
		t.Skip("TestSteps runs it")
	}
	storagetest.Run(t, storagetest.Config{
		Open: func(tb testing.TB) storage.Storage {
			return until(step(), open(tb, drivertest.NewMemory(false, driver.Limits{})))
		},
		Then: true, Queues: step() >= lastStep, Crons: step() >= lastStep,
	})
}

// failures are the lines of a test's output that say what has failed.
func failures(out []byte) string {
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "PASS") && !strings.Contains(line, "=== ") &&
			!strings.Contains(line, "N-A") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// lastStep is the last step of docs/storage.md that adds calls.
const lastStep = 11

// step is how far the storage under test has come; all the way unless TestSteps says
// otherwise.
func step() int {
	n, err := strconv.Atoi(os.Getenv("OJS_STEP"))
	if err != nil {
		return lastStep + 1
	}
	return n
}

// until returns a storage that has only what was written until a step.
func until(step int, s storage.Storage) storage.Storage {
	p := &partial{s, step}
	if step < lastStep {
		return p
	}
	return struct {
		*partial
		storage.QueueStore
		storage.CronStore
	}{p, s.(storage.QueueStore), s.(storage.CronStore)}
}

// partial is a storage the later calls of which fail.
type partial struct {
	storage.Storage // not to be found by storage.As
	step            int
}

var errLater = errors.New("a later step")

func (p *partial) lacks(step int) error {
	if p.step < step {
		return errLater
	}
	return nil
}

// Capabilities are those of the steps.
func (p *partial) Capabilities() storage.Capabilities {
	c := p.Storage.Capabilities()
	return storage.Capabilities{Name: c.Name, Unique: c.Unique, Mechanism: c.Mechanism, Then: true}
}

func (p *partial) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	err := p.lacks(2)
	for i := range batch {
		if batch[i].Record.Unique != nil {
			err = errors.Join(err, p.lacks(8))
		}
		if batch[i].MaxDepth > 0 {
			err = errors.Join(err, p.lacks(9))
		}
	}
	if err != nil {
		return dst, err
	}
	return p.Storage.Insert(ctx, now, batch, dst)
}

func (p *partial) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := p.lacks(2); err != nil {
		return storage.Record{}, err
	}
	return p.Storage.Get(ctx, id)
}

func (p *partial) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if err := p.lacks(3); err != nil {
		return storage.Page{}, err
	}
	if q.Order != storage.OrderOldest {
		return storage.Page{}, ojs.ErrUnsupported
	}
	page, err := p.Storage.List(ctx, q)
	page.Prev = ""
	return page, err
}

func (p *partial) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := p.lacks(3); err != nil {
		return nil, err
	}
	return p.Storage.Counts(ctx)
}

func (p *partial) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	if err := p.lacks(4); err != nil {
		return dst, err
	}
	return p.Storage.Claim(ctx, now, c, dst)
}

func (p *partial) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := p.lacks(5); err != nil {
		return dst, err
	}
	return p.Storage.Settle(ctx, now, changes, dst)
}

func (p *partial) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	if err := p.lacks(6); err != nil {
		return nil, err
	}
	return p.Storage.Extend(ctx, now, extensions)
}

func (p *partial) Due(ctx context.Context, now time.Time, max int,
	buf []storage.Record) (storage.Due, error) {
	if err := p.lacks(7); err != nil {
		return storage.Due{}, err
	}
	return p.Storage.Due(ctx, now, max, buf)
}

func (p *partial) Delete(ctx context.Context, ids []string) (int, error) {
	if err := p.lacks(10); err != nil {
		return 0, err
	}
	return p.Storage.Delete(ctx, ids)
}

func (p *partial) Prune(ctx context.Context, q storage.Prune) (storage.Pruned, error) {
	if err := p.lacks(10); err != nil {
		return storage.Pruned{}, err
	}
	return p.Storage.Prune(ctx, q)
}
