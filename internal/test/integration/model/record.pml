/*
 * The protocol of one job's record and its messages, for spin.
 *
 * model.md beside this file says what each part stands for in the code, and
 * what is left out. The bounds can be set with -D: workers, faults (a crash, a
 * request or reply lost, a request delayed, a visibility that runs out while its
 * holder lives, a message that expires or is cleared) and stops (notices and
 * failures, after which a job is released). SINGLE leaves the second enqueue out,
 * NO_MOVE the on-demand queue, NO_OPERATOR the operator's cancellation and
 * take-over. POISON_DESK adds an operator's replay and purge, REQUEUE messages
 * that are lost and an operator who requeues. CANCEL makes the operator cancel, and
 * name the job in the control document afterwards. SEARCH adds that many searches: a
 * worker claims a message that no other claims, to move its job or to leave it. TWO_MOVES
 * adds the queue First: a job moves there, and from there to the on-demand queue.
 * PUT_AGAIN adds the job's owner, who puts a job that has ended again, once.
 *
 * ETags, claim tokens and write numbers grow without end, so they are not here.
 * What the protocol asks of them is: whether what an actor knows is still the
 * record (current), whether the record was written by a worker's present claim,
 * and if so whether by its latest write (author). That is all the rules compare.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef STOPS
#define STOPS 1
#endif

/* What the handler has to do, in steps that a state can hold. */
#define STEPS 2

#define OPERATOR WORKERS
#define DESK (WORKERS + 1) /* the operator at the poison queue, or who requeues, or the job's owner */
#if defined(POISON_DESK) || defined(REQUEUE) || defined(PUT_AGAIN)
#define ACTORS (WORKERS + 2)
#define AGAIN_EXISTS
#else
#define ACTORS (WORKERS + 1)
#endif
#define NOBODY 255

/*
 * Messages of the job: the first, a second enqueue, one in another queue, and one
 * that replaces a lost message or that an operator or the owner puts. Of the last two
 * even a first delivery reads the record, since they say resume.
 */
#define ORIGINAL 0
#define DUPLICATE 1
#define MOVED 2
#define AGAIN 3
#define FIRST 3 /* never with AGAIN */
#define firstGone true
#define firstVisible false
#ifdef AGAIN_EXISTS
#define MESSAGES 4
#define againGone gone(AGAIN)
#define againVisible (message[AGAIN] == visible)
#else
#define againGone true
#define againVisible false
#ifdef TWO_MOVES
#define MESSAGES 4
#undef firstGone
#define firstGone gone(FIRST)
#undef firstVisible
#define firstVisible (message[FIRST] == visible)
#else
#define MESSAGES 3
#endif
#endif
#define gone(x) (message[x] == deleted || message[x] == absent)

mtype:statuses = { none, open, running, done, poison, cancelled };
mtype:places = { absent, visible, taken, waiting, deleted };
mtype:authors = { other, older, latest };
mtype:rulings = { effective, repeat, finish, putback, fenced };

#define final(s) ((s) == done || (s) == poison || (s) == cancelled)

/* The record. */
mtype:statuses status = none;
byte owner;    /* message that owns it */
byte progress; /* steps in the stored state */

/* What actors know of it. */
bool current[ACTORS];         /* the ETag known to the actor is the record's */
bool under[WORKERS];          /* so is the one its doubtful write was conditional on */
mtype:authors author[WORKERS]; /* who wrote it, as the worker's present claim sees it */

/* A request that the service has not looked at yet, one for each actor. */
typedef request {
	bool sent;
	bool create;
	bool holds;  /* its ETag is the record's */
	bool mine;   /* a worker's present claim sent it */
	bool newest; /* and nothing since */
	mtype:statuses status;
	byte message;
	byte steps
};
request flight[ACTORS];

mtype:places message[MESSAGES];
byte holder[MESSAGES];  /* worker whose receipt counts */
bool delivered[MESSAGES];
byte posted;            /* messages on the poison queue */
bool kept;              /* the record has endedat: a replay opened it, and no worker has claimed it */
#ifdef PUT_AGAIN
bool asked;             /* the owner's command has begun, and has not reported the job */
bool anew;              /* the record's number is that of the message that the owner puts */
#endif
#ifdef CANCEL
bool named;             /* the control document names the job as cancelled, and every worker reads that */
#endif

byte faults = FAULTS;
byte stops = STOPS;
#ifdef SEARCH
byte searches = SEARCH;
#endif

byte i; /* scratch, in d_steps only */
bool replays; /* the write being applied is a replay's, a purge's or the owner's; in d_steps only */

#ifdef WITHOUT_CONDITION
#define CONDITION(create, holds) true
#else
#define CONDITION(create, holds) ((create) -> status == none : (holds))
#endif

/* The job has its outcome, and where that is poison people can find it. */
#define ended (status == done || status == cancelled || (status == poison && posted > 0))

/*
 * Another message carries the job on: one that was put for that, or once a replay
 * opened the record, any. Until a replay has put its own message, the poison
 * message stands for the job.
 */
#define another(x, y) (x != y && !gone(y))
#ifdef PUT_AGAIN
#define carriedOn(x) (another(x, AGAIN) || asked)
#else
#ifdef POISON_DESK
#define carriedOn(x) (another(x, ORIGINAL) || another(x, DUPLICATE) || another(x, MOVED) || another(x, AGAIN) || posted > 0)
#else
#ifdef REQUEUE
#define carriedOn(x) (another(x, MOVED) || another(x, AGAIN))
#else
#ifdef TWO_MOVES
#define carriedOn(x) (another(x, MOVED) || another(x, FIRST))
#else
#define carriedOn(x) another(x, MOVED)
#endif
#endif
#endif
#endif

/* A message of the run before the owner put the job again is obsolete. */
#if defined(PUT_AGAIN) && !defined(OLD_COUNTS)
#define past(x) (anew && x != AGAIN)
#else
#define past(x) false
#endif

/* An outcome is written over by a replay or purge of poison, or at the owner's request. */
#ifdef PUT_AGAIN
#define mayReopen true
#else
#define mayReopen (status == poison)
#endif

/* fault consumes one of the faults that may still happen. */
#define fault (faults > 0) -> faults--

/*
 * apply is what the service does with a request whose condition holds. The
 * promises about writes are here.
 */
inline apply(toStatus, toOwner, toProgress, keepsToken)
{
	assert(!final(status) || (mayReopen && replays)); /* nothing is written over an outcome, but by a replay or purge over poison, or by the owner */
#ifdef PUT_AGAIN
	assert(final(toStatus) || toProgress >= progress || replays); /* progress never goes backwards, but at the owner's request */
	assert(!anew || toOwner == NOBODY || toOwner == AGAIN); /* no message of the run before writes the record of the new one */
	if
	:: replays -> anew = true; posted = 0 /* a poison message of the run before is obsolete too */
	:: else
	fi;
#else
	assert(final(toStatus) || toProgress >= progress); /* progress never goes backwards */
#endif
	kept = (replays && toStatus == open);
	replays = false;
	status = toStatus;
	progress = toProgress;
	if
	:: toOwner != NOBODY -> owner = toOwner
	:: else
	fi;
	for (i : 0 .. WORKERS - 1) {
		if
		:: !keepsToken -> author[i] = other
		:: else
		fi;
		under[i] = false
	}
	for (i : 0 .. ACTORS - 1) {
		current[i] = false;
		flight[i].holds = false
	}
	i = 0
}

/* forget leaves nothing of a request, so that states compare equal. */
inline forget(x)
{
	flight[x].sent = false;
	flight[x].create = false;
	flight[x].holds = false;
	flight[x].mine = false;
	flight[x].newest = false;
	flight[x].status = none;
	flight[x].message = 0;
	flight[x].steps = 0
}

/* Net delivers a delayed request at any later time, or never. */
proctype Net(byte a)
{
end:
	do
	:: d_step {
		flight[a].sent ->
		if
		:: CONDITION(flight[a].create, flight[a].holds) ->
			replays = (a == DESK);
			apply(flight[a].status, flight[a].message, flight[a].steps, false);
			if
			:: a < WORKERS && flight[a].mine && flight[a].newest -> author[a] = latest
			:: a < WORKERS && flight[a].mine && !flight[a].newest -> author[a] = older
			:: else
			fi
		:: else
		fi;
		forget(a)
	}
	od
}

/*
 * Clock makes a message visible again: at once when its holder is gone, as a
 * fault while it lives. A message that was put back comes after those that wait
 * to be taken, since it waits for 30 s and more.
 */
proctype Clock(byte m)
{
end:
	do
	:: atomic { message[m] == taken && holder[m] == NOBODY -> message[m] = visible }
	:: atomic { message[m] == taken && holder[m] != NOBODY && fault; message[m] = visible }
	:: atomic {
		message[m] == waiting && message[ORIGINAL] != visible && message[DUPLICATE] != visible && message[MOVED] != visible && !againVisible &&
		!firstVisible ->
		message[m] = visible
	}
#ifdef REQUEUE
	/* It expires, or somebody clears the queue. */
	:: atomic { !gone(m) && !ended && status != none && fault; message[m] = deleted }
#endif
	od
}

/* attempt sends one write of worker p and sets sure: whether it got a good reply. */
inline attempt(wanted, reached)
{
	if
	:: author[p] == latest -> author[p] = older
	:: else
	fi;
	flight[p].newest = false;
	under[p] = !create && current[p];
	if
	:: d_step {
		if
		:: CONDITION(create, current[p]) ->
			apply(wanted, m, reached, false);
			author[p] = latest;
			current[p] = true;
			create = false;
			sure = true
		:: else -> sure = false
		fi
	}
	:: fault; sure = false /* lost, without effect */
	:: d_step { /* delayed; delivered at once it is a lost reply */
		!flight[p].sent && fault;
		flight[p].sent = true;
		flight[p].create = create;
		flight[p].holds = current[p];
		flight[p].mine = true;
		flight[p].newest = true;
		flight[p].status = wanted;
		flight[p].message = m;
		flight[p].steps = reached;
		sure = false
	}
	fi
}

/* settle is the one read after a conflict or an unknown outcome. */
inline settle()
{
	d_step {
		if
		:: status == none -> create = true; ruling = repeat
		:: status != none && past(m) -> ruling = finish
		:: else ->
			if
			:: author[p] == latest -> ruling = effective
#ifdef TOKEN_ALONE
			:: author[p] == older -> ruling = effective
#else
			:: author[p] == older && status == running -> ruling = repeat
			:: author[p] == older && status != running && final(status) -> ruling = finish
			:: author[p] == older && status != running && !final(status) -> ruling = putback
#endif
			:: author[p] == other ->
				if
				:: under[p] -> ruling = repeat
				:: !under[p] && final(status) -> ruling = finish
				:: !under[p] && !final(status) && (status == open || owner != m) -> ruling = putback
				:: else -> ruling = fenced
				fi
			fi;
			if
			:: ruling == effective || ruling == repeat -> current[p] = true; create = false
			:: else
			fi
		fi
	}
}

/*
 * write repeats a write until it took effect or was ruled out. The worker may
 * die before each request and each read.
 */
inline write(toWrite, upTo)
{
	do
	:: atomic {
		attempt(toWrite, upTo);
		if
		:: sure -> ruling = effective; break
		:: else
		fi
	}
	atomic {
		maybeCrash();
		settle();
		if
		:: ruling == repeat
		:: else -> break
		fi
	}
	od
}

/* KNOW is what a claim learns of the states of the record that it reads. */
#define KNOW skip

/* maybeCrash ends the worker, as a fault. */
inline maybeCrash()
{
	if
	:: true
	:: fault; goto crashed
	fi
}

/* reveal makes the message visible, as a release or a put-back does. */
inline reveal(how)
{
	if
	:: holder[m] == p && message[m] != deleted -> message[m] = how; holder[m] = NOBODY
	:: else
	fi
}

/*
 * handBack is the release of a job whose record is open, or that left none. A
 * message that the service does not find is replaced. The service may say so of
 * one that another worker has, too.
 */
inline handBack()
{
	if
	:: holder[m] == p && message[m] != deleted -> message[m] = visible; holder[m] = NOBODY
#if defined(REQUEUE) && !defined(NOT_REPLACED)
	:: (holder[m] != p || message[m] == deleted) && againGone -> message[AGAIN] = visible; holder[AGAIN] = NOBODY
	:: (holder[m] != p && message[m] != deleted) || !againGone
#else
	:: else
#endif
	fi
}

proctype Worker(byte p)
{
	byte m, at;
	bool create, sure;
	mtype:rulings ruling = fenced;
	mtype:statuses next = none;
#ifdef CANCEL
	bool knew;    /* the document named the job when the message was claimed */
	bool checked; /* the running job's record was read because of it */
#endif
#ifdef SEARCH
	bool moves; /* it claimed the message to move the job, and calls no handler */
#endif

end:	do
	:: atomic {
		if
		:: message[ORIGINAL] == visible -> m = ORIGINAL
		:: message[DUPLICATE] == visible -> m = DUPLICATE
		:: message[MOVED] == visible -> m = MOVED
#ifdef AGAIN_EXISTS
		:: message[AGAIN] == visible -> m = AGAIN
#endif
#ifdef TWO_MOVES
		:: message[FIRST] == visible -> m = FIRST
#endif
		fi;
		message[m] = taken;
		holder[m] = p;
		create = !delivered[m] && m < MOVED;
		delivered[m] = true;
#ifdef SEARCH
		/* A search looks at the queue of jobs alone, and reads the record even at a first delivery. */
		if
		:: m != MOVED && searches > 0 -> searches--; moves = true; create = false
		:: true
		fi;
#endif
#ifdef CANCEL
		knew = named;
		checked = false;
		if
#ifndef NOT_CHECKED_BEFORE
		:: create && named -> goto claim /* the message is older than the newest cancel */
		:: create && !named -> goto work
#else
		:: create -> goto work
#endif
		:: else
		fi
#else
		if
		:: create -> goto work /* a first delivery reads nothing: its first write finds out */
		:: else
		fi
#endif
	}

	/* Recover: one read, then a write that claims. */
	atomic {
		maybeCrash();
		if
		:: status == none -> create = true; ruling = repeat
		:: final(status) || past(m) -> ruling = finish
#ifdef ANY_OWNER
		:: status == open || status == running ->
#else
		:: !past(m) && (status == open || (status == running && owner == m)) ->
#endif
			current[p] = true; at = progress; KNOW; ruling = repeat
#ifdef REQUEUE
		/* the hour after which a record is stale, which only counts where its own message is gone */
		:: status == running && owner != m && gone(owner) -> current[p] = true; at = progress; KNOW; ruling = repeat
		:: status == running && owner != m && !gone(owner) -> ruling = putback
#else
#ifndef ANY_OWNER
		:: !past(m) && status == running && owner != m -> ruling = putback
#endif
#endif
		fi;
		if
		:: ruling != repeat -> goto ruled
		:: else
		fi
#ifdef SEARCH
		;
		if
		:: moves -> reveal(visible); goto idle /* its deadline is not at risk: as if it had not been claimed */
		:: true
		fi
#endif
	}
claim:	write(running, at);

ruled:	atomic {
		if
#ifdef SEARCH
		:: ruling == effective && moves -> next = open; goto store
		:: ruling == effective && !moves -> goto work
#else
		:: ruling == effective -> goto work
#endif
		:: ruling == finish -> goto over
		:: ruling == putback -> reveal(waiting); goto idle
		:: ruling == fenced -> goto idle
		fi
	}

work:	atomic {
#if defined(CANCEL) && !defined(CANCEL_BLIND)
		assert(!knew); /* no handler starts of a job that the document named at the claim */
#endif
		maybeCrash();
#ifdef CANCEL
		/* The document names the job: one read of its record decides. */
		if
#ifdef CANCEL_BLIND
		:: named && !checked -> goto over
#endif
		:: named && !checked && !current[p] && status != none && author[p] == other && final(status) -> goto over
		:: named && !checked && !current[p] && status != none && author[p] == other && !final(status) && (status == open || owner != m) ->
			ruling = putback; goto ruled
		:: named && !checked && !current[p] && status != none && author[p] == other && status == running && owner == m ->
			ruling = fenced; goto ruled
		:: named && !checked && (current[p] || status == none || author[p] != other) -> checked = true
		:: true /* it has not read the document yet */
		fi;
#endif
		if
		:: at < STEPS -> at++; next = running
		:: at < STEPS -> at++; goto work /* reported, not saved */
		:: at < STEPS -> next = poison
		:: at == STEPS -> next = done
		:: stops > 0 ->
			stops--;
			if
			:: create && at == 0 -> handBack(); goto idle /* nothing to keep */
			:: else -> next = open
			fi
		fi
	}
store:
	write(next, at);
	atomic {
		if
		:: ruling == effective && next == running -> goto work
		:: ruling == effective && next == open -> goto free
		:: ruling == effective && final(next) -> goto over
		:: else -> goto ruled
		fi
	}

	/* The record is open. Release the message, or move the job to another queue. */
free:	atomic {
		maybeCrash();
		if
		:: true -> handBack(); goto idle
#ifndef NO_MOVE
		:: message[MOVED] == absent -> message[MOVED] = visible
#endif
#ifdef TWO_MOVES
		:: m < MOVED && message[FIRST] == absent -> message[FIRST] = visible
#endif
#ifdef SEARCH_WITHOUT_PUT
		:: moves -> goto remove
#endif
		fi
	}
	goto remove;

	/* The job has ended, by this worker or another. */
over:	if
#ifdef POISON_DESK
	:: atomic { status == poison && posted < 3 -> maybeCrash(); posted++ }
#else
	:: atomic { status == poison && posted == 0 && !past(m) -> maybeCrash(); posted++ }
#endif
	:: else
	fi;

remove:	atomic {
		maybeCrash();
		if
		:: holder[m] == p ->
			/* no message goes without an outcome, or another that carries the job on */
			assert(ended || carriedOn(m));
			message[m] = deleted
		:: holder[m] != p /* the receipt does not count any more */
		:: fault /* the request is lost */
		fi;
		goto idle
	}

crashed: skip;
idle:	skip;
	d_step {
		if
		:: holder[m] == p && message[m] != deleted -> holder[m] = NOBODY
		:: else
		fi;
		current[p] = false;
		under[p] = false;
		author[p] = other; /* what it claims next it claims with a fresh token */
		flight[p].mine = false;
		flight[p].newest = false;
		at = 0; m = 0; create = false; sure = false; ruling = fenced; next = none
#ifdef CANCEL
		; knew = false; checked = false
#endif
#ifdef SEARCH
		; moves = false
#endif
	}
	od
}

/*
 * Operator cancels the job or takes it over from its owner, once, or does
 * nothing. It is not the record's owner, so it writes a fresh token.
 */
proctype Operator()
{
	mtype:statuses wanted;

	if
	:: wanted = none
	:: wanted = cancelled
#ifndef CANCEL
	:: wanted = open
#endif
	fi;
#ifdef CANCEL_BLIND
	if
	:: wanted == cancelled -> named = true
	:: else
	fi;
#endif
	do
	:: d_step {
		if
		:: wanted == none || final(status) || (wanted == open && status != running) -> wanted = none
		:: else -> current[OPERATOR] = (status != none)
		fi
	}
	if
	:: wanted == none -> break
	:: else
	fi;
	if
	:: d_step { /* between read and write others write */
		if
		:: CONDITION(current[OPERATOR] == false, current[OPERATOR]) ->
#ifdef OPERATOR_KEEPS_TOKEN
			apply(wanted, NOBODY, progress, true);
#else
			apply(wanted, NOBODY, progress, false);
#endif
			wanted = none
		:: else
		fi
	}
	:: d_step {
		!flight[OPERATOR].sent && fault;
		flight[OPERATOR].sent = true;
		flight[OPERATOR].create = (current[OPERATOR] == false);
		flight[OPERATOR].holds = current[OPERATOR];
		flight[OPERATOR].status = wanted;
		flight[OPERATOR].message = NOBODY;
		flight[OPERATOR].steps = progress;
#ifdef CANCEL
		skip /* without an answer it reads again, and names nothing before the record is cancelled */
#else
		wanted = none
#endif
	}
	fi
	od;
#ifdef CANCEL
	if
	:: status == cancelled -> named = true
	:: else
	fi
#endif
}

#ifdef POISON_DESK
/*
 * Desk replays or purges a job that was given up, once, or as often as it is cut
 * short: record, then the new message of a replay, then the poison message.
 */
proctype Desk()
{
	mtype:statuses wanted;
	bool found;

	if
	:: wanted = none
	:: wanted = cancelled
	:: wanted = open
	fi;
end:	do
	:: atomic { wanted == none -> break }
	:: atomic { /* the read, when there is a poison message */
		wanted != none && posted > 0 ->
		current[DESK] = true;
		found = (status == poison || (status == open && kept));
		if
		:: !found -> goto drop /* the job has ended otherwise, or is running again */
#ifdef PURGE_BLIND
		:: found && wanted == cancelled -> goto drop
#endif
		:: found && status == open && wanted == open -> goto put
		:: else
		fi
	}
	if
	:: d_step { /* between read and write others write */
		if
		:: current[DESK] -> replays = true; apply(wanted, NOBODY, progress, false); found = true
		:: else -> found = false
		fi
	}
	:: d_step { /* lost or delayed: it looks again */
		!flight[DESK].sent && fault;
		flight[DESK].sent = true;
		flight[DESK].holds = current[DESK];
		flight[DESK].status = wanted;
		flight[DESK].message = NOBODY;
		flight[DESK].steps = progress;
		found = false
	}
	fi;
	if
	:: !found -> goto again
	:: found && wanted == cancelled -> goto drop
	:: else
	fi;
put:	atomic {
		if
		:: gone(AGAIN) -> message[AGAIN] = visible; holder[AGAIN] = NOBODY
		:: !gone(AGAIN) /* it is there from the time before */
		:: fault; goto again /* the operator's machine dies */
		fi
	}
drop:	atomic {
		if
		:: posted > 0 -> posted--
		:: else
		fi;
		wanted = none;
		/* no poison message goes without an outcome, or a message of the job */
		assert(ended || !gone(ORIGINAL) || !gone(DUPLICATE) || !gone(MOVED) || !gone(AGAIN))
	}
again:	skip
	od
}
#endif

#ifdef PUT_AGAIN
/*
 * Owner puts the job again once it has ended, and repeats the command until it reports
 * the job: record, then the new message.
 */
proctype Owner()
{
	bool opened;

end:	do
	:: atomic { /* the read, once there is an outcome */
		ended || asked ->
		asked = true;
		current[DESK] = true;
		if
		:: anew && !(status == open && !delivered[AGAIN]) -> break /* a worker has the job: the command says so */
		:: anew && status == open && !delivered[AGAIN] -> opened = true
		:: !anew -> opened = false
		fi
	}
	if
	:: opened
	:: d_step { /* between read and write others write */
		!opened && current[DESK] && final(status) -> replays = true; apply(open, NOBODY, 0, false); opened = true
	}
	:: !opened && !(current[DESK] && final(status))
	:: d_step { /* lost or delayed: it looks again */
		!opened && !flight[DESK].sent && fault;
		flight[DESK].sent = true;
		flight[DESK].holds = current[DESK];
		flight[DESK].status = open;
		flight[DESK].message = NOBODY;
		flight[DESK].steps = 0
	}
	fi;
	atomic {
		if
		:: opened && gone(AGAIN) -> message[AGAIN] = visible; holder[AGAIN] = NOBODY
		:: opened && !gone(AGAIN)
		:: opened && fault; goto again /* the owner's machine dies */
		:: !opened -> goto again
		fi;
		break
	}
again:	skip
	od;
	asked = false
}
#endif

#if defined(REQUEUE) && !defined(NOT_REPLACED)
/*
 * Requeuer puts a message for a job that has a record and no message, as often as
 * that happens. It writes no record.
 */
proctype Requeuer()
{
end:	do
	:: atomic {
		gone(ORIGINAL) && gone(DUPLICATE) && gone(MOVED) && gone(AGAIN) && !ended && status != none ->
		message[AGAIN] = visible; holder[AGAIN] = NOBODY
	}
	od
}
#endif

/* The job ends, and nothing is left of it on any queue. */
#if defined(POISON_DESK) || defined(PUT_AGAIN)
#define ever <>[] /* and it stays so: a replay, or the owner, may begin again what had ended */
#else
#define ever <>
#endif
ltl ends { ever (ended && gone(ORIGINAL) && gone(DUPLICATE) && gone(MOVED) && againGone && firstGone) }

init {
	atomic {
		for (i : 0 .. MESSAGES - 1) {
			message[i] = absent;
			holder[i] = NOBODY
		}
		i = 0;
		message[ORIGINAL] = visible;
#ifndef SINGLE
		message[DUPLICATE] = visible;
#endif
		for (i : 0 .. WORKERS - 1) { author[i] = other }
		i = 0;
		run Clock(ORIGINAL);
#ifndef SINGLE
		run Clock(DUPLICATE);
#endif
#ifndef NO_MOVE
		run Clock(MOVED);
#endif
#ifdef AGAIN_EXISTS
		run Clock(AGAIN);
#endif
#ifdef TWO_MOVES
		run Clock(FIRST);
#endif
		run Worker(0);
#if WORKERS > 1
		run Worker(1);
#endif
#if WORKERS > 2
		run Worker(2);
#endif
		run Net(0);
#if WORKERS > 1
		run Net(1);
#endif
#if WORKERS > 2
		run Net(2);
#endif
#ifndef NO_OPERATOR
		run Net(OPERATOR);
		run Operator();
#endif
#ifdef POISON_DESK
		run Net(DESK);
		run Desk();
#endif
#ifdef PUT_AGAIN
		run Net(DESK);
		run Owner();
#endif
#if defined(REQUEUE) && !defined(NOT_REPLACED)
		run Requeuer();
#endif
		skip
	}
}
