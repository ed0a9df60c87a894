package storagetest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The contract of a storage is the doc comments of package storage: that of the package,
// and those of its types, their fields and methods. Each sentence there ends with the
// cases that prove it, as in "the highest priority first [claim-3]", or is in the list of
// those that ask nothing of a storage. The first sentence about a type may just define
// it. Functions are code of package storage, which its own tests prove; the methods of
// Record are what storages do to a job, and so part of the contract.

// tag is a list of cases in a sentence.
var tag = regexp.MustCompile(`\s*\[([a-z]+-[0-9]+(?:, [a-z]+-[0-9]+)*)\]`)

// sentence is one of the contract.
type sentence struct {
	of      string   // what it is said of, as in "Storage.Claim"
	text    string   // without the tags
	cases   []string // that prove it
	defines bool     // it is the first about a type, and begins with its name
}

func (s sentence) String() string { return fmt.Sprintf("%s: %q", s.of, s.text) }

// Every sentence of the contract is a case, and every case proves a sentence.
func TestEverySentenceIsACase(t *testing.T) {
	ids := map[string]bool{"histories-1": true} // Histories, which is no case
	for _, c := range Cases() {
		if ids[c.ID] {
			t.Errorf("there are two cases %s", c.ID)
		}
		ids[c.ID] = true
	}
	proven, explained := make(map[string]bool), make(map[string]bool)
	sentences := contract(t, "..")
	if len(sentences) < 150 {
		t.Errorf("found %d sentences", len(sentences))
	}
	for _, s := range sentences {
		for _, id := range s.cases {
			if proven[id] = true; !ids[id] {
				t.Errorf("there is no case %s, which shall prove\n\t%v", id, s)
			}
		}
		explains := slices.Contains(explanations, s.text)
		switch explained[s.text] = true; {
		case explains && len(s.cases) > 0:
			t.Errorf("proven, and in the list of explanations:\n\t%v", s)
		case !explains && !s.defines && len(s.cases) == 0:
			t.Errorf("no case proves, and no list of explanations has\n\t%v", s)
		}
	}
	for _, text := range explanations {
		if !explained[text] {
			t.Errorf("in the list of explanations, and not in the contract: %q", text)
		}
	}
	for id := range ids {
		if !proven[id] {
			t.Errorf("no sentence of the contract names %s", id)
		}
	}
}

// contract returns the sentences of the doc comments of a directory.
func contract(t *testing.T, dir string) (all []sentence) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, said("package", file.Doc)...)
		for _, d := range file.Decls {
			all = append(all, declared(d)...)
		}
	}
	return all
}

// declared returns the sentences about a declaration.
func declared(d ast.Decl) (all []sentence) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if of := receiver(d); of == "Record" && d.Name.IsExported() {
			return said(of+"."+d.Name.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
				about := said(s.Name.Name, cmp.Or(s.Doc, d.Doc))
				if len(about) > 0 {
					about[0].defines = strings.HasPrefix(about[0].text, s.Name.Name+" ")
				}
				all = append(all, about...)
				all = append(all, members(s)...)
			}
		}
	}
	return all
}

// members returns the sentences about the fields of a struct or the methods of an
// interface.
func members(s *ast.TypeSpec) (all []sentence) {
	var list *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		if len(f.Names) > 0 && f.Names[0].IsExported() {
			of := s.Name.Name + "." + f.Names[0].Name
			all = append(all, said(of, f.Doc)...)
			all = append(all, said(of, f.Comment)...)
		}
	}
	return all
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	name, _ := typ.(*ast.Ident)
	return name.Name
}

// said returns the sentences of a doc comment.
func said(of string, doc *ast.CommentGroup) (all []sentence) {
	var blocks func(list []comment.Block)
	blocks = func(list []comment.Block) {
		for _, b := range list {
			switch b := b.(type) {
			case *comment.Paragraph:
				all = append(all, sentences(of, textOf(b.Text))...)
			case *comment.List:
				for _, item := range b.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(new(comment.Parser).Parse(doc.Text()).Content)
	return all
}

// textOf returns a text without its links.
func textOf(text []comment.Text) string {
	var b strings.Builder
	for _, x := range text {
		switch x := x.(type) {
		case comment.Plain:
			b.WriteString(string(x))
		case comment.Italic:
			b.WriteString(string(x))
		case *comment.Link:
			b.WriteString(textOf(x.Text))
		case *comment.DocLink:
			b.WriteString(textOf(x.Text))
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// sentences splits a paragraph where a full stop or a colon ends what a capital letter
// follows.
func sentences(of, text string) (all []sentence) {
	words := strings.Fields(text)
	for begin, i := 0, 0; i < len(words); i++ {
		if i+1 < len(words) {
			next := []rune(strings.TrimLeft(words[i+1], `"*`))
			capital := len(next) > 0 && !unicode.IsLower(next[0]) || begins[words[i+1]]
			if !strings.HasSuffix(words[i], ".") || !capital {
				continue
			}
		}
		s := sentence{of: of, text: strings.Join(words[begin:i+1], " ")}
		for _, m := range tag.FindAllStringSubmatch(s.text, -1) {
			s.cases = append(s.cases, strings.Split(m[1], ", ")...)
		}
		s.text = strings.TrimSuffix(tag.ReplaceAllString(s.text, ""), ".")
		all, begin = append(all, s), i+1
	}
	return all
}

// begins are the words in small letters with which sentences begin: names of code.
var begins = map[string]bool{
	"now": true, "f": true, "next": true, "ok": true,
	"ojs.ErrNotFound:": true,
}

// explanations are the sentences that ask nothing of a storage that a case could prove:
// they define a word, tell a reason, name a duty of callers, allow something, or bound a
// cost.
var explanations = []string{
	"The rest of these records is undefined, and all of them if the call fails",
	"A storage may end the listing after its first 10,000 jobs",
	"It is quick and keeps nothing of the job",
	"Engines store no Priority outside of -2^31 to 2^31-1, and no Queue or Type of more than 255 bytes",
	// The meaning of words, and reasons.
	"Package storage is the contract between an engine and the place where its jobs live",
	"A storage keeps records and makes their transitions atomic",
	"It decides nothing: it reads no clock, since every call says what time it is, draws no random " +
		"number and knows no retry policy",
	"The methods of Record define the effect of each transition on the fields of a record; " +
		"a storage supplies atomicity, order and lookup",
	"Adapters run one case with -run 'Conformance/Claim/Priority', the path that the table at the end " +
		"of a run shows beside the tag",
	"Capabilities says what the storage is",
	"If there are any, the policy's strategy decides:",
	"Its methods are the transitions that a storage makes by itself; each changes the record in place " +
		"and raises its version",
	"Zero: never",
	"Zero: it may be pruned at once",
	"Zero: it has none",
	`"memory", "postgres"`,
	"of the guarantee that equal jobs do not coexist",
	`of that guarantee, for people: "mutex", "unique index"`,
	`"": unknown`,
	"the time for which a job was last made; zero: never",
	"of the jobs, their args and their options",
	"Engines encode what they hold",
	"A storage looks at nothing but the fields of Document",
	"Remote says that the attempts may outlive this process: a worker elsewhere makes them",
	"IDIsNew says that the id was drawn for this job and no other caller has seen it: a storage need " +
		"not look for it, nor for the versions that a deleted job with it had",

	"A storage forgets starts that count for no bound, and may not know the starts of a key from before " +
		"the first one under a rate or throttle, nor those of a queue or type from before it had one",
	"A queue or type has those of its setting",
	"It may be earlier if several limits hold a job back",
	"It may be set without such a job",
	"of the key, queue or type",
	"Shared says that several processes may use the storage at once",
	"Engines on it report on themselves",

	// Duties of callers.
	"Only Concurrency, Rate and Throttle of the bounds count",
	"Engines do not close it: the program that opened it does",
	"An id is in a call once",
	"No name occurs twice in a call",
	"Engines set it for storages that are not strong (Capabilities.Unique)",
	"Engines use it only if Capabilities.InsertClaims is set",
	"A level is the available jobs of one queue and priority",
	"A round is some jobs of a level that have keys",
	"It stands where the first of these stood when it became available, and stays there",
	"It is at most some hundred KiB",
	"Callers see to it that no circle arises",
	"CanRevive checks a job of Revive: r is the stored record, and to the one that it is to become",
	"The error is that of Revive",
	"f must not call the storage, and must be quick",
	"look at all there is",
	"An engine refuses to change a storage that lacks it in such a context, since the change would " +
		"not be part of the transaction",
	"Engines on the wall clock follow it, so that machines whose clocks differ agree on what is due",

	// Things that a storage may do, or should.
	"A storage may keep the slice",
	"It is optional; see As",
	"It is optional",
	"It is optional",
	"It is optional, for storages that decode what they have stored; see As",
	"A storage may leave everything else unwritten",
	"An available job that is given back, or that keeps its place and is given another deadline, may come anywhere among " +
		"the jobs of that time",
	"Claim and Insert may obey the state that a queue had at any moment of their call",
	"An argument that is invalid may fail the call before these",
	"If it is there all the same, there may be two jobs with it",
	"The call fails as a whole only if the storage does; it may then have applied some",
	"It may have fewer records than the limit, or none, though more follow",
	"Notices are hints: they may come late, twice or, where others are in another process, never",
	"So a notice of Everything follows now and then",
	"A storage that keeps its jobs in the order of this time finds in one place everything that comes due",
	"Close releases what the storage holds",

	"A storage may treat Claim, Extend, Due, List and Prune in the same way, with a moment for each job",
	"Claim may then skip jobs that a call under way is changing, and Insert may count the jobs of a " +
		"bounded queue while other calls change it",
	"Settle may see at any moment of its call that it refuses a change",
	"SettleAndClaim is then a Settle that is followed by a Claim",
	"Config.JobByJob of package storagetest declares such a storage",

	// Costs, which the benchmarks of this package measure.
	"It must not scan the jobs",
	"The cost of a call does not grow with the number of finished jobs that it leaves",
	"The cost of a call grows with the documents that it names or returns, and only with the logarithm " +
		"of those that are stored",
	"Engines claim one job in a step, or a few, of a storage that is not durable, and up to some hundreds " +
		"of one that is",
	"It is cheap",
	"Its cost is at most that of a look at all active jobs",
	"ClockOffset is cheap",
	"It asks no server",

	// Only a storage with a connection to others can fail to hear. The tests of
	// PostgreSQL and of engines have it.
	"CheckNotify returns why notices of other processes do not arrive, nil if nothing is known to hold " +
		"them up",
	"Health and Stats of an engine report it",

	// Code of package storage.
	"Record.Copy makes such copies",
	"Before the job's end only the policy counts",
	"Copy returns a record that shares nothing with r",
	"CanSettle checks a change that Settle is asked for: r is the stored record and to the one given",
	"The error is that of [Settled]: ErrFenced if the versions differ, an *ojs.TransitionError if no " +
		"job may go from the one state to the other, or nil",
	"The storage itself must have it: one that it wraps is not asked",
	"The storage itself must have it, not one that it wraps",

	// Rules that only a storage's own tests can prove.
	"Other attempts end with this process, and a storage that can prove that it has ended hands " +
		"them over at once, as if their leases had run out",
	"A recurring entry there does not exist for DocumentStore, a state of a queue not for QueueStore",
	"It changes as clocks drift",
	"Joins reports whether calls with the transaction take part in it: whether it is of a kind that " +
		"the storage knows",
}
