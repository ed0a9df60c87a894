package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// Idempotency keys (F117). The answer to a request with a key is kept in the storage as
// values, for a day.
//
//  1. A request stores its claim of the key, unless there is one: the storage decides
//     between two.
//  2. It does its work and replaces the claim by its answer. Pieces of a large answer are
//     stored before.
//  3. The server renews the claim while it works, whether or not the client waits. A
//     claim ends after claimTime: its server has been killed. A claim is given up if the
//     storage fails.
//  4. The next request with the key takes over a claim that has ended, with the time of
//     the first one. The ids of new jobs follow from key, time and place. So a job that
//     the first request has stored is recognised.

const (
	idempotencyPrefix = "server/once/"
	idempotencyTime   = 24 * time.Hour
	claimTime         = time.Minute
	pieceSize         = 128 << 10
	maxIdempotencyKey = 256
)

// idempotent is a request with a key; nil: it has none.
type idempotent struct {
	name string
	kept keptAnswer
}

// keptAnswer is the value of a key.
type keptAnswer struct {
	Sent   string    `json:"sent"`             // the hash of the body
	Begun  time.Time `json:"begun"`            // of the first request
	Until  time.Time `json:"until,omitzero"`   // when the claim ends
	Status int       `json:"status,omitempty"` // 0: it is under way
	Header []string  `json:"header,omitempty"` // names and values by turns
	Claim  uint64    `json:"claim,omitempty"`  // the version of the claim, which names the pieces
	Pieces int       `json:"pieces,omitempty"` // of the body
}

// keptHeaders are the headers that a repeated answer has, too.
var keptHeaders = []string{"X-OJS-Batch-Size", "X-OJS-Max-Batch-Size", "Location"}

var operators = bridge.Take[bridge.Operators[operate.Jobs, storage.DocumentStore]]()

// values is where the storage keeps values.
func (s *Server) values() storage.DocumentStore { return operators.Documents(s.op.Jobs()) }

// idempotently does the work of a request whose key is new. For a known key it repeats
// the answer.
func (s *Server) idempotently(c *call, operation string, do func(k *idempotent) error) (err error) {
	key := c.r.Header.Get("Idempotency-Key")
	if key == "" {
		in := c.in()
		if key = in.text("idempotency_key"); in.err != nil {
			return in.err
		}
	}
	if key == "" {
		return do(nil)
	}
	if len([]rune(key)) > maxIdempotencyKey {
		return invalid("idempotency_key", "has more than "+strconv.Itoa(maxIdempotencyKey)+" characters")
	}
	who := ""
	if c.who != nil {
		who = c.who.Name
	}
	k := &idempotent{name: idempotencyPrefix + digest(who, operation, key)}
	sent := digest(string(c.sent))
	at := s // which has the key
	if s.isFront() {
		if at, err = s.fleet.keyed(c.ctx, k.name); err != nil {
			return err
		}
	}
	version, err := at.claim(c, k, sent)
	if err != nil || version == 0 {
		return err
	}
	c.ctx = context.WithoutCancel(c.ctx) // the answer is for the next try, too
	renewed := at.renewClaim(c.ctx, *k, version)
	defer renewed() // if do panics
	answer := &recorder{ResponseWriter: c.w}
	c.w = answer
	err = do(k)
	c.w = answer.ResponseWriter
	version = renewed()
	if err != nil {
		r := c.refusalOf(err)
		if r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests {
			at.release(c.ctx, k, version)
			return err
		}
		c.w = answer
		c.fail(r)
		c.w = answer.ResponseWriter
	}
	k.kept.Status = answer.status
	for _, name := range keptHeaders {
		if v := c.w.Header().Get(name); v != "" {
			k.kept.Header = append(k.kept.Header, name, v)
		}
	}
	if err := at.keep(c.ctx, k, answer.body.Bytes(), version); err != nil {
		s.conf.log.Warn("the answer to a request with an idempotency key is not kept", "request_id", c.id,
			"error", err)
	}
	_ = c.write(answer.status, answer.body.Bytes())
	return nil
}

// digest is the SHA-256 of texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(t)))
		h.Write(n[:])
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// claim takes the key for a request. A version of 0 says that the request was answered.
func (s *Server) claim(c *call, k *idempotent, sent string) (version uint64, err error) {
	for {
		now := s.now()
		list, err := s.values().Documents(c.ctx, storage.KindValue,
			storage.DocumentQuery{Names: []string{k.name}})
		if err != nil {
			return 0, err
		}
		k.kept = keptAnswer{Sent: sent, Begun: now}
		var before storage.Document
		if len(list) == 1 {
			before = list[0]
			var kept keptAnswer
			if err := json.Unmarshal(before.Data, &kept); err != nil {
				return 0, err
			}
			switch {
			case !now.Before(before.Due): // a day is over
			case kept.Sent != sent:
				return 0, keyConflict("was used for a request with another body")
			case kept.Status != 0:
				return 0, s.repeat(c, k, &kept)
			case now.Before(kept.Until):
				r := keyConflict("is used by a request under way")
				r.retryable, r.after = true, time.Second
				return 0, r
			default:
				k.kept.Begun = kept.Begun
			}
		}
		k.kept.Until = now.Add(claimTime)
		version, err = s.put(c.ctx, k, before.Version)
		if err != nil || version != 0 {
			return version, err
		}
	}
}

func keyConflict(reason string) *refusal {
	return refuse(http.StatusConflict, codeConflict, "the idempotency key %s", reason).with("field",
		"idempotency_key")
}

// renewClaim renews a claim until its result is called, which returns the version of the
// claim.
func (s *Server) renewClaim(ctx context.Context, k idempotent, version uint64) (done func() uint64) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	timer := s.clock.Ticker(claimTime / 4)
	go func() {
		defer close(ended)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			k.kept.Until = s.now().Add(claimTime)
			next, err := s.put(context.WithoutCancel(ctx), &k, version)
			switch {
			case err != nil:
				s.conf.log.Warn("the claim of an idempotency key is not renewed", "error", err)
			case next == 0: // another request has taken it over
				return
			default:
				version = next
			}
		}
	}()
	return func() uint64 {
		cancel()
		<-ended
		return version
	}
}

// put stores the value of a key for a day, in the place of a version. It returns 0 if
// there is another.
func (s *Server) put(ctx context.Context, k *idempotent, version uint64) (uint64, error) {
	now := s.now()
	return s.documents().Swap(ctx, now,
		document.Value{Key: k.name, Expires: now.Add(idempotencyTime), Data: marshal(k.kept)}, version)
}

// release gives up a claim, so that the request may be made again. It leaves the time of
// the first request.
func (s *Server) release(ctx context.Context, k *idempotent, version uint64) {
	k.kept.Until = time.Time{}
	_, err := s.put(ctx, k, version)
	if err != nil {
		s.conf.log.Warn("an idempotency key is not given up; it is free in a minute", "error", err)
	}
}

// keep stores an answer.
func (s *Server) keep(ctx context.Context, k *idempotent, body []byte, version uint64) error {
	k.kept.Claim, k.kept.Until = version, time.Time{}
	due := s.now().Add(idempotencyTime)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(body) // to memory
	_ = z.Close()
	rest := packed.Bytes()
	for len(rest) > 0 {
		n := min(len(rest), pieceSize)
		_, err := s.values().PutDocuments(ctx, storage.KindValue, []storage.Document{{
			Name: k.piece(version, k.kept.Pieces), Version: storage.AnyVersion, Due: due, Data: rest[:n]}})
		if err != nil {
			return err
		}
		k.kept.Pieces++
		rest = rest[n:]
	}
	stored, err := s.put(ctx, k, version)
	if err == nil && stored == 0 {
		err = errors.New("ojs: server: another request has taken the key over")
	}
	return err
}

// piece names a piece of an answer. Requests with the same key have claims of their own.
func (k *idempotent) piece(claim uint64, n int) string {
	return k.name + "/" + strconv.FormatUint(claim, 10) + "/" + strconv.Itoa(n)
}

// repeat gives an answer again.
func (s *Server) repeat(c *call, k *idempotent, kept *keptAnswer) error {
	var packed []byte
	for n := range kept.Pieces {
		list, err := s.values().Documents(c.ctx, storage.KindValue,
			storage.DocumentQuery{Names: []string{k.piece(kept.Claim, n)}})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return keyConflict("has an answer that is kept no more")
		}
		packed = append(packed, list[0].Data...)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(kept.Header); i += 2 {
		c.w.Header().Set(kept.Header[i], kept.Header[i+1])
	}
	return c.replyJSON(kept.Status, body)
}

// identify gives a new job its id, if the request has a key and the job has no id. The
// time is that of the first request with the key.
func (k *idempotent) identify(d ojs.Draft, place int) (ojs.Draft, string) {
	if k == nil {
		return d, ""
	}
	var o ojs.Options
	if o.Apply(d.Options()...); o.ID != "" {
		return d, ""
	}
	sum := sha256.Sum256([]byte(k.name + "/" + strconv.Itoa(place) + "/" +
		k.kept.Begun.Format(time.RFC3339Nano)))
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(k.kept.Begun.UnixMilli())<<16)
	copy(u[6:], sum[:])
	u[6], u[8] = 0x70|u[6]&0xf, 0x80|u[8]&0x3f
	return d.With(ojs.WithID(u.String())), u.String()
}

// recorder keeps an answer until it is stored.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader and Write keep the answer.
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
