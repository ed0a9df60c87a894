package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Idempotency keys (F117). The answer to a request with a key is kept in the storage as
// values, for a day.
//
//  1. A request stores its claim of the key, unless there is one: the storage decides
//     between two.
//  2. It does its work and replaces the claim by its answer. Pieces of a large answer are
//     stored before.
//  3. A claim ends after claimTime: its server has been killed. The next request with the
//     key takes it over, with the time of the first one. The ids of new jobs follow from
//     key, time and place. So a job that the killed server has stored is recognised.

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
	Status int       `json:"status,omitempty"` // 0: it is under way
	Header []string  `json:"header,omitempty"` // names and values by turns
	Pieces int       `json:"pieces,omitempty"` // of the body
}

// keptHeaders are those that an answer gives again.
var keptHeaders = []string{"X-OJS-Batch-Size", "X-OJS-Max-Batch-Size", "Location"}

// values returns where values are kept.
func (s *Server) values() storage.DocumentStore { return s.op.Jobs().Documents() }

// onlyOnce does a request whose key no other has, or answers as before.
func (s *Server) onlyOnce(c *call, operation string, do func(k *idempotent) error) error {
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
	version, err := s.claim(c, k, sent)
	if err != nil || version == 0 {
		return err
	}
	answer := &recorder{ResponseWriter: c.w}
	c.w = answer
	err = do(k)
	c.w = answer.ResponseWriter
	if err != nil {
		r := c.refusalOf(err)
		if r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests {
			s.release(k, version)
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
	if err := s.keep(k, answer.body.Bytes(), version); err != nil {
		s.conf.log.Warn("the answer to a request with an idempotency key is not kept", "request_id", c.id,
			"error", err)
	}
	c.w.WriteHeader(answer.status)
	_, _ = c.w.Write(answer.body.Bytes())
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
			over := !now.Before(before.Due)
			switch {
			case kept.Status != 0 && over: // a day is over
			case kept.Sent != sent:
				return 0, keyConflict("was used for a request with another body")
			case kept.Status != 0:
				return 0, s.repeat(c, k, &kept)
			case !over:
				r := keyConflict("is used by a request under way")
				r.retryable, r.after = true, before.Due.Sub(now)
				if r.after > time.Second {
					r.after = time.Second
				}
				return 0, r
			default:
				k.kept.Begun = kept.Begun
			}
		}
		version, err = s.put(c.ctx, k, before.Version, now.Add(claimTime))
		if err != nil || version != 0 {
			return version, err
		}
	}
}

func keyConflict(reason string) *refusal {
	return refuse(http.StatusConflict, codeConflict, "the idempotency key %s", reason).with("field",
		"idempotency_key")
}

// put stores the value of a key in the place of a version. It returns 0 if there is
// another.
func (s *Server) put(ctx context.Context, k *idempotent, version uint64, due time.Time) (uint64, error) {
	versions, err := s.values().PutDocuments(ctx, storage.KindValue, []storage.Document{
		{Name: k.name, Version: version, Due: due, Data: marshal(k.kept)}})
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}

// release gives up a claim, so that the request may be made again.
func (s *Server) release(k *idempotent, version uint64) {
	_, err := s.values().PutDocuments(context.WithoutCancel(context.Background()), storage.KindValue,
		[]storage.Document{{Name: k.name, Version: version}})
	if err != nil {
		s.conf.log.Warn("an idempotency key is not given up; it is free in a minute", "error", err)
	}
}

// keep stores an answer. The client may have gone: the answer is for its next try.
func (s *Server) keep(k *idempotent, body []byte, version uint64) error {
	ctx := context.Background()
	due := s.now().Add(idempotencyTime)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(body) // to memory
	_ = z.Close()
	rest := packed.Bytes()
	for len(rest) > 0 {
		n := min(len(rest), pieceSize)
		_, err := s.values().PutDocuments(ctx, storage.KindValue, []storage.Document{{
			Name: k.piece(k.kept.Pieces), Version: storage.AnyVersion, Due: due, Data: rest[:n]}})
		if err != nil {
			return err
		}
		k.kept.Pieces++
		rest = rest[n:]
	}
	_, err := s.put(ctx, k, version, due)
	return err
}

func (k *idempotent) piece(n int) string { return k.name + "/" + strconv.Itoa(n) }

// repeat gives an answer again.
func (s *Server) repeat(c *call, k *idempotent, kept *keptAnswer) error {
	var packed []byte
	for n := range kept.Pieces {
		list, err := s.values().Documents(c.ctx, storage.KindValue,
			storage.DocumentQuery{Names: []string{k.piece(n)}})
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
