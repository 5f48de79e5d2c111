// A cron expression in words, as far as it is a usual one.
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

export function describeCron(expression: string): string {
  const fields = expression.trim().split(/\s+/);
  if (fields.length < 5) return "Minute, hour, day of the month, month, day of the week: 30 7 * * 1-5";
  const [minute = "", hour = "", day = "", month = "", weekday = ""] = fields;
  const time = describeTime(minute, hour);
  if (!time || month !== "*") return `Cron: ${expression.trim()}`;
  if (day === "*" && weekday === "*") return time.isRepeated ? time.text : `${time.text} every day`;
  if (day === "*") return `${time.text} ${describeWeekday(weekday)}`;
  return weekday === "*" ? `${time.text} on day ${day} of the month` : `Cron: ${expression.trim()}`;
}

function describeTime(minute: string, hour: string): { text: string; isRepeated: boolean } | null {
  const every = /^\*\/(\d+)$/.exec(minute);
  if (every && hour === "*") return { text: `Every ${every[1]} minutes`, isRepeated: true };
  if (minute === "*" && hour === "*") return { text: "Every minute", isRepeated: true };
  if (/^\d+$/.test(minute) && hour === "*") return { text: `Every hour at minute ${minute}`, isRepeated: true };
  if (!/^\d+$/.test(minute) || !/^\d+(,\d+)*$/.test(hour)) return null;
  const times = hour.split(",").map((each) => `${each.padStart(2, "0")}:${minute.padStart(2, "0")}`);
  return { text: `At ${times.join(" and ")}`, isRepeated: false };
}

function describeWeekday(weekday: string): string {
  if (weekday === "1-5" || weekday.toLowerCase() === "mon-fri") return "on weekdays";
  if (weekday === "0,6" || weekday === "6,0" || weekday === "6-7") return "at weekends";
  if (/^[0-7](,[0-7])*$/.test(weekday)) return `on ${weekday.split(",").map((each) => DAYS[Number(each)]).join(" and ")}`;
  return `on ${weekday}`;
}
