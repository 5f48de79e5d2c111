"""Samples of real texts, one kind each, for measuring the token estimate."""

# ruff: noqa: E501 (wide characters count double)

from __future__ import annotations

ENGLISH = """\
The ferry left an hour late, and by the time it cleared the breakwater the light had gone the colour of weak tea. Marta
stood at the rail with her collar up and counted the lamps along the shore, as she had done every autumn since she was
nine. There were fewer of them now. The cannery had closed, then the school, and finally the little hotel where her aunt
used to play the piano on Saturday nights for an audience of fishermen who pretended not to enjoy it.

She had come back to sell the house. It was a sensible decision, everybody agreed, and she had practised the sentence so
often that it no longer sounded like something a person would say. The roof needed replacing; the well tasted of iron;
nobody in the family wanted to spend August painting shutters. Still, when the harbour slid into view, she found that she
was looking for the crooked chimney before she looked for anything else.

An old man in a yellow coat was waiting on the quay with a bicycle. He raised one hand, slowly, as if the gesture had
been stored somewhere and had to be brought down from a shelf. "You'll be wanting the key," he said when she reached him.
"I fixed the pump in June. Didn't seem right, leaving it like that." He would not hear of being paid. They walked up the
hill without hurrying, the bicycle ticking between them, and he told her who had died, who had married, and what the
winter had done to the orchard.
"""

MARKDOWN = """\
# Backups

Two kinds of backup run every night: a **snapshot** of the database and a **mirror** of the uploads folder. Neither
replaces the other.

## What is kept

| What        | Where                | For how long |
|-------------|----------------------|--------------|
| snapshots   | `/var/backups/db`    | 14 days      |
| mirror      | `s3://nightly-media` | 90 days      |
| audit trail | `/var/log/audit`     | one year     |

## Restore a snapshot

1. Stop the writer: `systemctl stop ledger-writer`.
2. Pick the newest file that is *older* than the incident:

   ```sh
   ls -t /var/backups/db/*.dump | head -n 5
   pg_restore --clean --dbname ledger /var/backups/db/2024-03-18.dump
   ```

3. Run the [consistency check](./checks.md#consistency) and read its report before you start the writer again.

> **Note** A restore does not bring back uploads. Use the mirror for that, and expect about ten minutes per gigabyte.

## When something goes wrong

- *The dump is empty.* The disk was full; see `journalctl -u backup` and free some space first.
- *Restore stops with "role does not exist".* Create the role by hand, then repeat step 2.
- *The check reports missing rows.* Do **not** start the writer. Call whoever is on duty and send them the report.

See also: [Retention](retention.md), [Disaster plan](plan.md), and the notes in `docs/decisions/0007-backups.md`.
"""

PYTHON = '''\
"""A small cache that forgets what nobody asked for lately."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Entry(Generic[V]):
    value: V
    expires_at: float


class RecentCache(Generic[K, V]):
    """Keeps at most `capacity` values, each for at most `lifetime` seconds."""

    def __init__(self, capacity: int, lifetime: float, now: Callable[[], float] = time.monotonic) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self._capacity = capacity
        self._lifetime = lifetime
        self._now = now
        self._entries: OrderedDict[K, Entry[V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at <= self._now():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: K, value: V) -> None:
        self._entries[key] = Entry(value, self._now() + self._lifetime)
        self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, entry in self._entries.items() if entry.expires_at > self._now()])

    def __len__(self) -> int:
        return sum(1 for _ in self)
'''

JSON = """\
{
  "agents": {
    "defaults": {
      "workspace": "~/assistant/workspace",
      "model": {"primary": "openai/gpt-5", "fallbacks": ["google/gemini-pro", "local/small"]},
      "heartbeat": {"every": "30m", "target": "last", "ackMaxChars": 300},
      "contextLimits": {"memoryGetMaxChars": 12000, "toolResultMaxChars": 16000},
      "sandbox": {"mode": "non-main", "scope": "session", "workspaceAccess": "rw"}
    },
    "list": [
      {"id": "main", "default": true, "name": "Ada", "skills": ["weather", "notes", "calendar"]},
      {"id": "research", "tools": {"deny": ["exec", "process"], "alsoAllow": ["web_fetch"]}}
    ]
  },
  "bindings": [
    {"agentId": "research", "match": {"channel": "http", "peer": {"kind": "group", "id": "lab-42"}}}
  ],
  "tools": {
    "exec": {"security": "allowlist", "ask": "on-miss", "safeBins": ["cut", "uniq", "head", "tail", "tr", "wc"]},
    "web": {"search": {"enabled": true, "maxResults": 5, "timeoutSeconds": 20}}
  },
  "session": {
    "dmScope": "main",
    "reset": {"mode": "daily", "atHour": 4, "idleMinutes": null},
    "identityLinks": {"owner": ["http:anna", "terminal:local"]}
  },
  "cron": {"enabled": true, "maxConcurrentRuns": 2, "store": "state.sqlite"}
}
"""

TYPESCRIPT = """\
import { EventEmitter } from "node:events";

export interface Job<T> {
  readonly id: string;
  readonly payload: T;
  attempts: number;
  runAfter: Date;
}

export type Outcome = { ok: true } | { ok: false; error: Error; retry: boolean };

type Worker<T> = (job: Job<T>, signal: AbortSignal) => Promise<Outcome>;

/** Runs jobs one after the other and puts the ones that failed back with a growing delay. */
export class JobQueue<T> extends EventEmitter {
  private readonly waiting: Job<T>[] = [];
  private running: Promise<void> | null = null;
  private readonly abort = new AbortController();

  constructor(private readonly worker: Worker<T>, private readonly maxAttempts = 5) {
    super();
  }

  push(payload: T, delayMs = 0): string {
    const id = crypto.randomUUID();
    this.waiting.push({ id, payload, attempts: 0, runAfter: new Date(Date.now() + delayMs) });
    this.waiting.sort((a, b) => a.runAfter.getTime() - b.runAfter.getTime());
    this.running ??= this.drain().finally(() => (this.running = null));
    return id;
  }

  async close(): Promise<void> {
    this.abort.abort();
    await this.running;
  }

  private async drain(): Promise<void> {
    while (this.waiting.length > 0 && !this.abort.signal.aborted) {
      const job = this.waiting.shift()!;
      const outcome = await this.worker(job, this.abort.signal);
      if (outcome.ok) {
        this.emit("done", job.id);
      } else if (outcome.retry && job.attempts + 1 < this.maxAttempts) {
        job.attempts += 1;
        this.waiting.push({ ...job, runAfter: new Date(Date.now() + 2 ** job.attempts * 100) });
      } else {
        this.emit("failed", job.id, outcome.error);
      }
    }
  }
}
"""

CHINESE = """\
老李在城南开了一家修表铺,铺子不大,只有一张桌子和一盏台灯,却已经开了三十多年。附近的人都知道,再旧的钟表送到他手里,过几天总能重新走起来。
他常说,修表和做人一样,急不得。一个零件装错了位置,看上去没有问题,时间却会慢慢偏掉,等到发现的时候,往往已经错过了很多事情。

今年春天,一个年轻人带来一只停了多年的怀表。他说这是爷爷留下的,家里没有人知道它是什么时候停的,也没有人记得它响起来是什么声音。老李把表打开,
用放大镜看了很久,然后告诉他,里面的发条断了,需要重新做一根。年轻人问要多少钱,老李想了想,说等修好了再谈。

两个星期以后,年轻人再来的时候,怀表已经放在桌上,走得很稳。老李没有收钱,只是请他坐下来喝一杯茶,听他讲爷爷的故事。原来那位老人年轻时是铁路工人,
每天靠这只表安排列车的时间,从来没有出过差错。临走的时候,年轻人把表贴在耳边听了一会儿,忽然笑了。他说,原来是这样的声音。

系统会在每次运行之前重新读取配置文件,并检查所有技能的版本。如果某个文件已经被修改,缓存就会失效,代理需要重新加载说明。为了节省费用,
请尽量把长期不变的内容放在前面,把经常变化的内容放在后面,这样模型服务商就可以重复使用已经计算过的部分。
"""

JAPANESE = """\
祖母の家には、小さな庭と古い井戸がありました。夏になると、私たちは毎日のようにそこへ集まり、冷たい水で西瓜を冷やしたり、縁側で宿題をしたりして過ごしました。
祖母はいつも台所に立っていて、時々こちらを見ては、にこにこと笑っていました。あの頃は、時間がゆっくり流れていたように思います。

大人になって東京で働き始めてからは、なかなか帰ることができませんでした。電話で話すたびに、祖母は「忙しいのはいいことだよ」と言ってくれましたが、
その声は少しずつ小さくなっていきました。去年の秋、ようやく休みを取って帰ってみると、庭の木は大きくなり、井戸には蓋がしてありました。

祖母は変わらない笑顔で迎えてくれました。そして、古い写真をたくさん見せてくれました。そこには、まだ若い祖母と、私が一度も会ったことのない祖父が写っていました。
二人は海の前に立って、少し照れたような顔をしています。「この人はね、写真が嫌いだったの」と祖母は言いました。

設定ファイルを変更した場合は、サーバーを再起動する必要はありません。新しい値は次の処理から自動的に使われます。ただし、ポート番号やデータベースの場所を変えたときは、
一度停止してから起動し直してください。エラーが表示された場合は、まずログを確認し、原因が分からなければ管理者に連絡してください。
"""

KOREAN = """\
할머니 댁에는 작은 마당과 오래된 감나무가 있었다. 여름이면 우리는 거의 매일 그곳에 모여 시원한 물에 수박을 담가 두고 마루에 앉아 숙제를 했다. 할머니는 늘 부엌에 계셨고, 가끔 우리를
돌아보며 환하게 웃으셨다. 그때는 시간이 참 천천히 흘렀던 것 같다.

어른이 되어 서울에서 일을 시작한 뒤로는 자주 내려가지 못했다. 전화를 드릴 때마다 할머니는 바쁜 것은 좋은 일이라고 말씀하셨지만, 목소리는 조금씩 작아지고 있었다. 지난가을 겨우 휴가를 내어
찾아갔을 때 감나무는 훨씬 커져 있었고 마당에는 낯선 고양이 두 마리가 살고 있었다.

할머니는 변함없는 얼굴로 나를 맞아 주셨다. 그리고 오래된 사진을 꺼내 보여 주셨다. 사진 속에는 아직 젊은 할머니와 내가 한 번도 만난 적 없는 할아버지가 바다 앞에 나란히 서 있었다. 두 사람은 조금
수줍은 표정을 하고 있었다. 나는 그 사진을 한참 동안 바라보았다.

설정 파일을 바꾸어도 서버를 다시 시작할 필요는 없습니다. 새로운 값은 다음 작업부터 자동으로 적용됩니다. 다만 포트 번호나 데이터베이스 위치를 바꾼 경우에는 한 번 종료한 다음 다시 실행해 주세요. 오류가
표시되면 먼저 기록을 확인하고, 원인을 알 수 없으면 관리자에게 연락해 주시기 바랍니다.
"""

MIXED = """\
## Release notes / 发布说明

- **Search**: `memory_search` now accepts `maxResults` (default 6). 搜索结果会显示来源,例如 `memory/2024-05-02.md#L3-L9`。
- **Skills**: a changed `SKILL.md` is off until approved. 修改过的技能需要重新批准才能使用。
- **設定**: `session.reset.atHour` を変更すると、次の日の朝から新しい時刻が使われます。

```python
async def recall(query: str, limit: int = 6) -> list[Hit]:
    # 先查缓存,再查索引
    if (hits := cache.get(query)) is not None:
        return hits[:limit]
    return await index.search(query, limit=limit)
```

Known issues: on macOS the file watcher may report a change twice (#481). 如果你看到两条相同的日志,可以放心忽略。
질문이 있으면 `retinue doctor --json`의 출력과 함께 알려 주세요. Thanks to everyone who tested the beta! 🎉

| key | before | after |
|---|---|---|
| `heartbeat.ackMaxChars` | 30 | 300 |
| `exec.ask` | "off" | "on-miss" |
"""

RUSSIAN = """\
В маленьком городе у реки жил часовщик, которого все звали просто по отчеству. Его мастерская занимала одну комнату на
первом этаже старого дома, и в любое время года там было тепло, тихо и пахло маслом. Говорили, что он может починить любые
часы, если только у хозяина хватит терпения подождать.

Однажды весной к нему пришёл молодой человек и положил на стол карманные часы, которые остановились много лет назад. Никто
в семье не помнил, как они звучат. Мастер долго рассматривал механизм через лупу, потом сказал, что лопнула пружина и что
новую придётся делать самому. О цене он говорить не стал.

Через две недели часы снова шли. Старик не взял денег, но попросил рассказать о человеке, которому они принадлежали. Они
проговорили до вечера, и за окном уже зажглись фонари, когда гость наконец поднялся. У двери он поднёс часы к уху и вдруг
улыбнулся.

Если настройки изменились, перезапускать сервер не нужно: новые значения начнут действовать со следующей задачи. Исключение
составляют номер порта и путь к базе данных. При ошибке сначала посмотрите журнал, а затем обратитесь к администратору.
"""

GERMAN = """\
Als der Zug endlich hielt, lag über dem Tal schon die Dämmerung. Johanna stieg als Einzige aus, stellte den Koffer auf den
nassen Bahnsteig und wartete, bis das letzte Licht hinter der Kurve verschwunden war. Nichts hatte sich verändert: die
Uhr ging noch immer vier Minuten nach, und der Kaugummiautomat neben der Bank war noch immer leer.

Sie war gekommen, um das Haus zu verkaufen. Alle hielten das für vernünftig, und sie hatte den Satz so oft geübt, dass er
gar nicht mehr nach ihr klang. Das Dach musste neu gedeckt werden, die Heizung stammte aus einem anderen Jahrhundert, und
niemand aus der Familie wollte seine Ferien damit verbringen, Fensterläden zu streichen.

Vor dem Bahnhof wartete ein alter Nachbar mit seinem Fahrrad. Er hob langsam die Hand, als müsse er die Bewegung erst aus
einem Schrank holen. Den Schlüssel habe er dabei, sagte er, und die Pumpe habe er im Juni repariert. Bezahlen lassen wollte
er sich nicht. So gingen sie nebeneinander den Berg hinauf, und er erzählte, wer gestorben war und wer geheiratet hatte.

Änderungen an der Konfigurationsdatei werden beim nächsten Auftrag wirksam; ein Neustart ist nur nötig, wenn sich die
Portnummer oder der Speicherort der Datenbank ändert. Bei Fehlern hilft zuerst ein Blick in das Protokoll.
"""

ARABIC = """\
كان في المدينة القديمة رجل يصلح الساعات، وكان دكانه صغيرا لا يتسع إلا لطاولة واحدة ومصباح خافت. ومع ذلك كان الناس يأتون إليه من
كل مكان، لأنهم يعرفون أن الساعة التي تدخل دكانه لا بد أن تعود إلى الحياة مهما طال الزمن. وكان يقول دائما إن إصلاح الساعات مثل
تربية الأطفال يحتاج إلى الصبر أكثر مما يحتاج إلى القوة.

في صباح يوم من أيام الربيع جاءه شاب يحمل ساعة جيب قديمة توقفت منذ سنوات طويلة. قال إنها كانت لجده، وإن أحدا في البيت لا يتذكر
صوتها. فتح الرجل الساعة ونظر إليها طويلا ثم قال إن النابض مكسور، وإنه سيصنع لها نابضا جديدا بيده. ولم يذكر شيئا عن الثمن.

وبعد أسبوعين عاد الشاب فوجد الساعة تعمل من جديد. لم يأخذ الرجل مالا، بل طلب منه أن يجلس ويحدثه عن جده. تحدثا حتى المساء، وعندما
قام الشاب ليذهب رفع الساعة إلى أذنه وابتسم. قال إنه عرف الآن ما الذي كان جده يسمعه كل ليلة قبل أن ينام.

لا حاجة إلى إعادة تشغيل الخادم بعد تغيير الإعدادات، فالقيم الجديدة تستعمل ابتداء من المهمة التالية. وإذا ظهر خطأ فاقرأ السجل أولا.
"""
