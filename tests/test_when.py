"""Time phrases: what they mean, what only looks like one, and the laws that hold for any text."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.text.when import TimePhrase, is_arranged, speaks_of_plans, time_phrases
from tests.cases import each

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2025, 6, 18, 15, 30, tzinfo=SHANGHAI)  # a Wednesday


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def local(written: str, zone: ZoneInfo = SHANGHAI) -> int:
    return micros(datetime.fromisoformat(written).replace(tzinfo=zone))


def only(text: str, now: datetime = NOW) -> TimePhrase:
    (found,) = time_phrases(text, now)
    return found


# Each row: the phrases, Chinese and English, that all mean the range.
MEANINGS = [
    ("今天 今日 today", "2025-06-18", "2025-06-19"),
    ("昨天 昨日 yesterday", "2025-06-17", "2025-06-18"),
    ("前天 the_day_before_yesterday", "2025-06-16", "2025-06-17"),
    ("大前天 3天前 三天前 ３天前 三天以前 3_days_ago three_days_ago", "2025-06-15", "2025-06-16"),
    ("明天 tomorrow", "2025-06-19", "2025-06-20"),
    ("后天 後天 两天后 the_day_after_tomorrow 2_days_from_now", "2025-06-20", "2025-06-21"),
    ("大后天 三天后 三天之後 3_days_from_now", "2025-06-21", "2025-06-22"),
    ("今早 今天早上 this_morning", "2025-06-18T05", "2025-06-18T12"),
    ("昨天上午", "2025-06-17T06", "2025-06-17T12"),
    ("昨天下午 昨天的下午 yesterday_afternoon", "2025-06-17T12", "2025-06-17T18"),
    ("昨晚 昨天晚上 昨夜 last_night yesterday_night", "2025-06-17T18", "2025-06-18T05"),
    ("今晚 tonight", "2025-06-18T18", "2025-06-19T05"),
    ("今天凌晨", "2025-06-18T00", "2025-06-18T06"),
    ("上周 上星期 上个礼拜 上週 一周前 last_week a_week_ago", "2025-06-09", "2025-06-16"),
    ("这周 本周 这个星期 這個禮拜 this_week", "2025-06-16", "2025-06-23"),
    ("下周 下星期 next_week", "2025-06-23", "2025-06-30"),
    ("上上周 两周前 两个星期前 兩個禮拜前 two_weeks_ago", "2025-06-02", "2025-06-09"),
    ("the_week_before_last a_couple_of_weeks_ago", "2025-06-02", "2025-06-09"),
    ("上周三 上週三 上个星期三 last_Wednesday", "2025-06-11", "2025-06-12"),
    ("周一 礼拜一 last_Monday on_Monday", "2025-06-16", "2025-06-17"),
    ("星期五 on_Friday last_friday Friday", "2025-06-13", "2025-06-14"),
    ("周三 on_Wednesday this_Wednesday", "2025-06-18", "2025-06-19"),
    ("这周五 this_Friday", "2025-06-20", "2025-06-21"),
    ("下周日 下个星期天 next_Sunday", "2025-06-29", "2025-06-30"),
    ("上个星期天", "2025-06-15", "2025-06-16"),
    ("上周二 上周的周二 上周周二 上星期的周二 一周前的周二", "2025-06-10", "2025-06-11"),
    ("上个礼拜的礼拜二 上一周的周二 上週那個週二", "2025-06-10", "2025-06-11"),
    ("last_Tuesday Tuesday_last_week last_week_Tuesday", "2025-06-10", "2025-06-11"),
    ("last_week's_Tuesday the_Tuesday_of_last_week", "2025-06-10", "2025-06-11"),
    ("last_week_on_Tuesday last_week,_on_Tuesday", "2025-06-10", "2025-06-11"),
    ("a_week_ago_on_Tuesday on_Tuesday_a_week_ago", "2025-06-10", "2025-06-11"),
    ("last_week_on_Tuesday_evening last_Tuesday_evening", "2025-06-10T17", "2025-06-11"),
    ("Tuesday_evening_of_last_week", "2025-06-10T17", "2025-06-11"),
    ("上周的周二晚上 上周二晚上", "2025-06-10T18", "2025-06-11T05"),
    ("上周周一到周三 last_week_Monday_to_Wednesday", "2025-06-09", "2025-06-12"),
    ("上周的周末 the_weekend_of_last_week", "2025-06-14", "2025-06-16"),
    ("last_week_at_the_weekend last_week's_weekend", "2025-06-14", "2025-06-16"),
    ("这周二 本周的周二 this_week_on_Tuesday Tuesday_this_week", "2025-06-17", "2025-06-18"),
    ("this_past_Tuesday the_past_Tuesday", "2025-06-17", "2025-06-18"),
    ("上上周五 上上周的周五 两周前的周五 两个星期前的周五", "2025-06-06", "2025-06-07"),
    ("Friday_the_week_before_last the_week_before_last_on_Friday", "2025-06-06", "2025-06-07"),
    ("two_weeks_ago_on_Friday on_Friday_two_weeks_ago", "2025-06-06", "2025-06-07"),
    ("上上上周五 三周前的周五 Friday_three_weeks_ago", "2025-05-30", "2025-05-31"),
    ("下周五 下周的周五 下週的週五 next_week_on_Friday", "2025-06-27", "2025-06-28"),
    ("Friday_next_week Friday_of_next_week Friday_week", "2025-06-27", "2025-06-28"),
    ("下下周的周五 两周后的周五 Friday_the_week_after_next", "2025-07-04", "2025-07-05"),
    ("上周五晚上 last_Friday_night", "2025-06-13T18", "2025-06-14T05"),
    ("周末 上周末 上个周末 last_weekend over_the_weekend", "2025-06-14", "2025-06-16"),
    ("这周末 this_weekend", "2025-06-21", "2025-06-23"),
    ("上个月 上月 一个月前 last_month a_month_ago", "2025-05-01", "2025-06-01"),
    ("这个月 本月 this_month", "2025-06-01", "2025-07-01"),
    ("下个月 next_month", "2025-07-01", "2025-08-01"),
    ("上月5号 上个月五号 5月5日 May_5", "2025-05-05", "2025-05-06"),
    ("这个月初 月初 6月初", "2025-06-01", "2025-06-11"),
    ("上个月中旬", "2025-05-11", "2025-05-21"),
    ("月底 这个月底 月末", "2025-06-21", "2025-07-01"),
    ("2024年2月下旬 late_February_2024", "2024-02-21", "2024-03-01"),
    ("2024年2月底", "2024-02-21", "2024-03-01"),
    ("上个季度 last_quarter", "2025-01-01", "2025-04-01"),
    ("今年 this_year", "2025-01-01", "2026-01-01"),
    ("去年 一年前 last_year a_year_ago", "2024-01-01", "2025-01-01"),
    ("前年 2023年 二〇二三年 两年前 in_2023", "2023-01-01", "2024-01-01"),
    ("明年 next_year", "2026-01-01", "2027-01-01"),
    ("去年5月 2024年5月 2024年五月份 May_2024 in_May_2024", "2024-05-01", "2024-06-01"),
    ("去年五月三号 2024年5月3日 ２０２４年５月３日 二零二四年五月三日", "2024-05-03", "2024-05-04"),
    ("2024-05-03 2024/5/3 3_May_2024 May_3rd,_2024 May_3,_2024", "2024-05-03", "2024-05-04"),
    ("5月3日 五月三号 May_3 on_May_3rd the_3rd_of_May", "2025-05-03", "2025-05-04"),
    ("6月18日 June_18", "2025-06-18", "2025-06-19"),
    ("6月19日 June_19 19_June", "2024-06-19", "2024-06-20"),
    ("2月29日 Feb._29", "2024-02-29", "2024-03-01"),
    ("5月 五月 in_May for_May since_May last_May", "2025-05-01", "2025-06-01"),
    ("5月初 五月上旬 in_early_May at_the_beginning_of_May", "2025-05-01", "2025-05-11"),
    ("early_May the_start_of_May early_last_month", "2025-05-01", "2025-05-11"),
    ("5月中 五月中旬 mid-May mid_May in_the_middle_of_May", "2025-05-11", "2025-05-21"),
    ("五月下旬 5月底 late_May at_the_end_of_May", "2025-05-21", "2025-06-01"),
    ("上月底 the_end_of_last_month late_last_month", "2025-05-21", "2025-06-01"),
    ("上旬 月头 the_start_of_this_month", "2025-06-01", "2025-06-11"),
    ("月中 中旬 the_middle_of_the_month", "2025-06-11", "2025-06-21"),
    ("下月初 the_beginning_of_next_month", "2025-07-01", "2025-07-11"),
    ("去年9月中旬 mid-September mid-September_2024", "2024-09-11", "2024-09-21"),
    ("九月第一个周末 the_first_weekend_of_September", "2024-09-07", "2024-09-09"),
    ("三月第二周 the_second_week_of_March", "2025-03-08", "2025-03-15"),
    ("上个月最后一周 the_last_week_of_May", "2025-05-25", "2025-06-01"),
    ("上个月最后一个周五 the_last_Friday_of_May", "2025-05-30", "2025-05-31"),
    ("下个月第一个周一 the_first_Monday_of_next_month", "2025-07-07", "2025-07-08"),
    ("五月第五个星期五 the_fifth_Friday_of_May", "2025-05-30", "2025-05-31"),
    ("上上周末 the_weekend_before_last", "2025-06-07", "2025-06-09"),
    ("下下周末 the_weekend_after_next", "2025-07-05", "2025-07-07"),
    ("5月14号那周 the_week_of_the_14th_of_May the_week_of_May_14", "2025-05-12", "2025-05-19"),
    ("12号那个周末 the_weekend_of_the_12th", "2025-06-14", "2025-06-16"),
    ("上个月7号 on_the_7th_of_last_month", "2025-05-07", "2025-05-08"),
    ("3号 三號 on_the_3rd since_the_3rd", "2025-06-03", "2025-06-04"),
    ("24号 二十四号 on_the_24th the_24th by_the_24th", "2025-05-24", "2025-05-25"),
    ("31号 on_the_31st", "2025-05-31", "2025-06-01"),
    ("3号到7号 3-7号 from_the_3rd_to_the_7th June_3-7 6月3号到7号", "2025-06-03", "2025-06-08"),
    ("24号晚上 on_the_24th_night", "2025-05-24T18", "2025-05-25T05"),
    ("周五到周日 Friday_to_Sunday from_Friday_to_Sunday", "2025-06-13", "2025-06-16"),
    ("周五晚", "2025-06-13T18", "2025-06-14T05"),
    ("前晚 前天晚上 the_night_before_last", "2025-06-16T18", "2025-06-17T05"),
    ("昨儿", "2025-06-17", "2025-06-18"),
    ("two_Sundays_ago the_Sunday_before_last", "2025-06-08", "2025-06-09"),
    ("Sunday_week a_week_on_Sunday a_week_from_Sunday", "2025-06-29", "2025-06-30"),
    ("this_coming_Saturday the_coming_Saturday", "2025-06-21", "2025-06-22"),
    ("this_past_Monday by_Monday", "2025-06-16", "2025-06-17"),
    ("下周初 early_next_week", "2025-06-23", "2025-06-26"),
    ("at_the_end_of_the_week late_this_week", "2025-06-20", "2025-06-23"),
    ("a_fortnight_ago", "2025-06-02", "2025-06-09"),
    ("the_year_before_last", "2023-01-01", "2024-01-01"),
    ("a_decade_ago", "2015-01-01", "2016-01-01"),
    ("本周早些时候 earlier_this_week", "2025-06-16", "2025-06-19"),
    ("今年早些时候 earlier_this_year", "2025-01-01", "2025-06-19"),
    ("later_this_month", "2025-06-18", "2025-07-01"),
    ("later_today earlier_today", "2025-06-18", "2025-06-19"),
    ("年初 今年年初 the_start_of_the_year early_this_year", "2025-01-01", "2025-04-01"),
    ("年中 mid-2025", "2025-05-01", "2025-09-01"),
    ("年底 今年底 at_the_end_of_the_year by_the_end_of_this_year", "2025-11-01", "2026-01-01"),
    ("去年年底 2024年底 the_end_of_last_year the_end_of_2024", "2024-11-01", "2025-01-01"),
    ("late_2024 in_late_2024", "2024-10-01", "2025-01-01"),
    ("上半年 the_first_half_of_the_year", "2025-01-01", "2025-07-01"),
    ("去年下半年 the_second_half_of_2024", "2024-07-01", "2025-01-01"),
    ("去年5月 May_last_year in_May_of_last_year", "2024-05-01", "2024-06-01"),
    ("开春 開春 in_spring in_the_spring", "2025-03-01", "2025-06-01"),
    ("late_spring", "2025-05-01", "2025-06-01"),
    ("暑假 去年暑假", "2024-07-01", "2024-09-01"),
    ("五一 今年五一 劳动节", "2025-05-01", "2025-05-06"),
    ("国庆 國慶節 去年国庆 十一国庆", "2024-10-01", "2024-10-08"),
    ("元旦 on_New_Year's_Day on_New_Year’s_Day", "2025-01-01", "2025-01-02"),
    ("圣诞 聖誕節 on_Christmas_Day", "2024-12-25", "2024-12-26"),
    ("平安夜 Christmas_Eve", "2024-12-24", "2024-12-25"),
    ("over_Christmas at_Christmas last_Christmas over_Christmas_2024", "2024-12-24", "2024-12-27"),
    ("this_Christmas next_Christmas", "2025-12-24", "2025-12-27"),
    ("on_New_Year's_Eve New_Years_Eve", "2024-12-31", "2025-01-01"),
    ("情人节 on_Valentine's_Day", "2025-02-14", "2025-02-15"),
    ("儿童节 六一", "2025-06-01", "2025-06-02"),
    ("双十一", "2024-11-11", "2024-11-12"),
    ("春节 过年 at_Chinese_New_Year", "2025-01-29", "2025-02-05"),
    ("去年春节 Chinese_New_Year_2024", "2024-02-10", "2024-02-17"),
    ("除夕", "2025-01-28", "2025-01-29"),
    ("大年初一", "2025-01-29", "2025-01-30"),
    ("清明 清明节", "2025-04-04", "2025-04-07"),
    ("端午", "2025-05-31", "2025-06-03"),
    ("2024年中秋 中秋节 去年的中秋", "2024-09-17", "2024-09-20"),
    ("6月 六月份 in_June", "2025-06-01", "2025-07-01"),
    ("7月 in_July last_July", "2024-07-01", "2024-08-01"),
    ("next_June", "2026-06-01", "2026-07-01"),
    ("春天 今年春天 last_spring spring_2025", "2025-03-01", "2025-06-01"),
    ("去年夏天 last_summer the_summer_of_2024", "2024-06-01", "2024-09-01"),
    ("2023年秋天 fall_2023 autumn_2023", "2023-09-01", "2023-12-01"),
    ("this_fall", "2025-09-01", "2025-12-01"),
    ("去年冬天 冬天 last_winter winter_2024", "2024-12-01", "2025-03-01"),
    ("半年前 六个月前 half_a_year_ago six_months_ago", "2024-12-01", "2025-01-01"),
    ("半个月前 half_a_month_ago", "2025-06-02", "2025-06-09"),
    ("a_couple_of_days_ago", "2025-06-16", "2025-06-17"),
    ("二十三天前 twenty-three_days_ago 23_days_ago", "2025-05-26", "2025-05-27"),
    ("一小时前 一个小时前 an_hour_ago", "2025-06-18T14", "2025-06-18T15"),
    ("3小时前 三個鐘頭前 3_hours_ago", "2025-06-18T12", "2025-06-18T13"),
    ("5分钟前 五分鐘前 5_minutes_ago", "2025-06-18T15:24:30", "2025-06-18T15:25:30"),
    ("半小时前 half_an_hour_ago", "2025-06-18T14:59:30", "2025-06-18T15:00:30"),
]

# Read ahead, as plans are.
AHEAD = [
    ("6月19日 June_19", "2025-06-19", "2025-06-20"),
    ("6月18日 今天 on_June_18 today", "2025-06-18", "2025-06-19"),
    ("6月17日 June_17th", "2026-06-17", "2026-06-18"),
    ("2月29日 Feb_29", "2028-02-29", "2028-03-01"),
    ("5月 in_May", "2026-05-01", "2026-06-01"),
    ("6月 in_June", "2025-06-01", "2025-07-01"),
    ("十二月初 in_early_December", "2025-12-01", "2025-12-11"),
    ("月初 下个月初 the_start_of_the_month", "2025-07-01", "2025-07-11"),
    ("月底 the_end_of_the_month", "2025-06-21", "2025-07-01"),
    ("14号 on_the_14th", "2025-07-14", "2025-07-15"),
    ("18号 on_the_18th", "2025-06-18", "2025-06-19"),
    ("24号 on_the_24th", "2025-06-24", "2025-06-25"),
    ("周一 on_Monday by_Monday", "2025-06-23", "2025-06-24"),
    ("周三 on_Wednesday", "2025-06-18", "2025-06-19"),
    ("周五 this_Friday", "2025-06-20", "2025-06-21"),
    ("周末 over_the_weekend", "2025-06-21", "2025-06-23"),
    ("冬天 in_winter", "2025-12-01", "2026-03-01"),
    ("九月第一个周末 the_first_weekend_of_September", "2025-09-06", "2025-09-08"),
    ("年初 the_start_of_the_year", "2026-01-01", "2026-04-01"),
    ("国庆 国庆节", "2025-10-01", "2025-10-08"),
    ("春节 at_Chinese_New_Year", "2026-02-17", "2026-02-24"),
    ("上周三 上周的周三 last_Wednesday last_week_on_Wednesday", "2025-06-11", "2025-06-12"),
    ("去年5月 May_2024", "2024-05-01", "2024-06-01"),
    ("昨天 yesterday", "2025-06-17", "2025-06-18"),
]

STRETCHES = [
    ("刚才 刚刚 剛才 just_now the_past_hour", "2025-06-18T14:30"),
    ("最近三天 过去三天 近3天 in_the_last_3_days the_past_three_days", "2025-06-15T15:30"),
    ("过去两周 過去兩週 over_the_past_two_weeks", "2025-06-04T15:30"),
    ("前几天 这几天 前幾天 几天前 a_few_days_ago the_past_week", "2025-06-11T15:30"),
    ("近半年 最近六个月 the_last_six_months", "2024-12-18T15:30"),
    ("最近 近来 近來 前阵子 recently lately the_other_day", "2025-05-19T15:30"),
]

NOT_TIMES = [
    "I may go. This may help. What comes next may surprise. Only 3 may enter.",
    "They march on. We march 10 miles. This march was long.",
    "She came second. Wait a second. The second one.",
    "We sat down in the sun. I wed her. Prices fall. We fall down.",
    "It will last three days. It may last a week. The last one. Next please.",
    "every Friday, on Sundays, Black Friday, the last week of school",
    "x2024y 20240 3.2024 2024 v1.2.3 in 20240 in 2024.5 /2024/05/03/x 12024-05-03",
    "3 days, two weeks, a month, 1.5 days ago, 1,000 days ago",
    "yesterdays todayish unrecently",
    "周杰伦 周星驰 喜欢上周杰伦 这周围 上周边 五月天",
    "玩了三天 一周 三个月 两年 5分钟 十几天前 一百三十天前 3.5天前 第三天后",
    "一周三次 每周三 每个星期六 每周末 两周一次 隔周五",
    "目前天气 以前年轻 以前天天 以后天天 聪明天真 如今天下 后天性格",
    "附近来了 将近三年 提前两天 早上月亮",
    "24年5月 正月初一 每个月底 岁月初心 刚刚好 5000年",
    "2024年13月 2024年2月30日 13月5日 2月30日 5月0日 2024-13-01 2024-02-30 2024/0/3",
    "February 30, 2024; May 32; 31 June 2023; 0000-01-01; 9999-12-31; in 2024-13-01",
    "24号楼 5号线 中山路24号 3号门 第24号 座位是12号 每月5号 24日游 38号",
    "买大了一号 大一号 园区街 3 号 过完年初几开门",
    "at the Christmas market, on Christmas cards",
    "一年中 三个月中 少年中国 新年初一 每年年底 每年年初",
    "十一个 十一点 五一路 五一广场 儿童节目 圣诞老人 清明上河图 难过年轻 春节快乐",
    "the 3rd floor, for the 2nd time, the 21st century, the 1st, the 5th element",
    "I love Christmas. early bird, late for work, in the end, the middle of nowhere, mid-air",
    "the last week of school, the first weekend, at the end of it, the week of fun",
    "99999年前 99999 years ago 9999999 days ago 99999 years from now",
]


def spoken(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(said.replace("_", " "), *rest) for words, *rest in rows for said in words.split()]


PHRASES = [said for said, *_ in spoken([*MEANINGS, *AHEAD, *STRETCHES])]


@each("said, since, until", spoken(MEANINGS))
def test_a_phrase_means_its_range(said: str, since: str, until: str) -> None:
    found = only(said)
    assert (found.phrase, found.since, found.until) == (said, local(since), local(until))


@each("said, since, until", spoken(AHEAD))
def test_read_ahead_a_phrase_means_what_is_not_over(said: str, since: str, until: str) -> None:
    (found,) = time_phrases(said, NOW, ahead=True)
    assert (found.phrase, found.since, found.until) == (said, local(since), local(until))


@each(
    "text",
    [
        *("婚礼定在9月20号", "我订了6月14号的票", "24号约了牙医", "我打算五月去日本"),
        *("我报了五月的马拉松", "周五要考试了", "改成10月4号了", "五一的票抢到了"),
        *("十二月初有什么安排", "我五月要去哪里", "24号有什么事", "我五月有什么比赛"),
        *("I booked a table for June 14", "My dentist appointment is on the 14th", "I will fly"),
        *("We're getting married on May 3", "I need to finish it by Friday", "The exam is Friday"),
        *(
            "I have a meeting on the 2nd",
            "I've got a wedding on the 20th",
            "Where do I fly in May?",
        ),
        *("Am I travelling in May?", "what plans do I have in May", "Did I book anything in May?"),
        "The boat is in the shed until May",
        "医生说六月之前不能跑步",
        *("我抢到了6月14号演唱会的票", "复查预约上了，25号", "疫苗排上号了，27号去打"),
        *("I got an appointment on the 28th", "They gave me a slot on May 3"),
        *("I've signed us up for the class on the 29th", "We got two tickets for May 3"),
    ],
)
def test_plans_and_bookings_lie_ahead(text: str) -> None:
    assert speaks_of_plans(text)


@each(
    "text",
    [
        *("我五月去了日本", "周五考试了", "周五的面试怎么样", "婚礼办得很热闹", "我去过婚礼"),
        *("The exam was on Friday", "I had a dentist appointment on the 14th", "We met in May"),
        *("How did the exam on Friday go?", "Where did I go in May?", "I was going to fly"),
        *("五月吃什么", "on Friday", ""),
        *("I got a parking ticket on May 3", "I got to my appointment on May 3 late"),
        *("面试是12号面的", "我上次体检是5月30号做的", "6号请假没去上班", "29号的聚会很开心"),
    ],
)
def test_what_is_over_or_no_plan_does_not_lie_ahead(text: str) -> None:
    assert not speaks_of_plans(text)


@each(
    "text, since",
    [
        ("科目三约到二十八号上午了", "2025-06-28T06"),
        ("科目三约到6月28号上午了", "2025-06-28T06"),
        ("体检排到了6月20号", "2025-06-20"),
        ("机票改签到29号了", "2025-06-29"),
        ("开庭时间定成了7月8号", "2025-07-08"),
        ("我们包间订的是28号", "2025-06-28"),
        ("庭审延期到周五了", "2025-06-20"),
        ("My driving test got moved to the 28th", "2025-06-28"),
        ("It's been scheduled for July 8", "2025-07-08"),
        ("They pushed back the launch to June 20", "2025-06-20"),
        ("The kickoff slipped to Friday", "2025-06-20"),
        ("They gave me an appointment for the 28th", "2025-06-28"),
        ("28号去了牙医那里", "2025-05-28"),
        ("上次约在28号，他没来", "2025-05-28"),
        ("I went to the dentist on the 28th", "2025-05-28"),
        ("I moved to Rome on June 20", "2024-06-20"),
        ("I had an appointment for the 28th and missed it", "2025-05-28"),
    ],
)
def test_a_date_right_behind_an_arrangement_lies_ahead(text: str, since: str) -> None:
    """In whatever tense it is told; what was done on a day is over."""
    (phrase,) = time_phrases(text, NOW)
    is_ahead = is_arranged(text, phrase.start, phrase.end)
    (meant,) = time_phrases(text, NOW, ahead=is_ahead)
    assert meant.since == local(since)


@each("said, since", spoken(STRETCHES))
def test_a_stretch_reaches_from_then_to_now_and_includes_now(said: str, since: str) -> None:
    found = only(said)
    assert (found.phrase, found.since, found.until) == (said, local(since), micros(NOW) + 1)


@each("said", ["未来三天", "接下来的3天", "the next 3 days", "over the coming three days"])
def test_a_stretch_ahead_starts_now(said: str) -> None:
    assert only(said) == TimePhrase(
        micros(NOW), micros(NOW + timedelta(days=3)), said, 0, len(said)
    )


@each("text", NOT_TIMES)
def test_what_only_looks_like_a_time_is_left_alone(text: str) -> None:
    assert time_phrases(text, NOW) == []


@each(
    "text, phrases",
    [
        ("我昨天下午和上周三都去了", ["昨天下午", "上周三"]),
        ("我上周，周三都没去", ["上周", "周三"]),
        ("I was ill last week, Monday I was back", ["last week", "Monday"]),
        ("From last Monday until yesterday evening", ["last Monday", "yesterday evening"]),
        ("我yesterday去的，不是today", ["yesterday", "today"]),
        ("上周一直在忙，上周一起吃饭", ["上周", "上周"]),
        ("这星期天天下雨，上周日本队赢了", ["这星期", "上周"]),
        ("三天前天气很好，大前天天气不好", ["三天前", "大前天"]),
        ("他说明天来，从前天开始", ["明天", "前天"]),
        ("今天下午茶很好吃", ["今天下午"]),
        ("农历三月初八，十一去云南", ["三月", "十一"]),
        ("2024 年 5 月 3 日和 3 天前", ["2024 年 5 月 3 日", "3 天前"]),
        ("The talk on the 3rd went well", ["on the 3rd"]),
        ("30号房东来收过房租，5号房门坏了", ["30号"]),
        ("LAST   WEEK, In may; yesterday's", ["LAST   WEEK", "In may", "yesterday"]),
        ("a party two days ago, 2024-05-03T10:00:00Z", ["two days ago", "2024-05-03"]),
        ("", []),
    ],
)
def test_phrases_are_found_inside_sentences(text: str, phrases: list[str]) -> None:
    assert [found.phrase for found in time_phrases(text, NOW)] == phrases


@each(
    "said, month, since",
    [
        ("this winter", 1, "2024-12-01"),
        ("last winter", 1, "2023-12-01"),
        ("next winter", 1, "2025-12-01"),
        ("冬天", 1, "2024-12-01"),
        ("冬天", 12, "2025-12-01"),
        ("last winter", 12, "2024-12-01"),
        ("last March", 3, "2024-03-01"),
        ("last May", 3, "2024-05-01"),
    ],
)
def test_a_season_or_month_follows_the_clock(said: str, month: int, since: str) -> None:
    assert only(said, NOW.replace(month=month)).since == local(since)


@each(
    "said, since",
    [("上周末", "2025-06-14"), ("last weekend", "2025-06-14"), ("周末", "2025-06-21")],
)
def test_on_a_sunday_the_weekend_is_still_running(said: str, since: str) -> None:
    assert only(said, NOW.replace(day=22)).since == local(since)


@each("said", ["最近一个月", "the past month"])
def test_a_stretch_of_months_starts_on_a_day_that_exists(said: str) -> None:
    assert only(said, NOW.replace(month=3, day=31)).since == local("2025-02-28T15:30")


@each("said", ["昨天", "yesterday"])
@each("day, hours", [("2025-03-10", 23), ("2025-11-03", 25), ("2025-06-18", 24)])
def test_a_day_lasts_from_midnight_to_midnight_when_clocks_change(
    said: str, day: str, hours: int
) -> None:
    found = only(said, datetime.fromisoformat(day).replace(hour=9, tzinfo=NEW_YORK))
    assert found.until == local(day, NEW_YORK)
    assert found.until - found.since == hours * 3_600_000_000


@each("said", ["昨天下午", "yesterday afternoon"])
def test_an_afternoon_starts_at_noon_on_the_day_clocks_change(said: str) -> None:
    found = only(said, datetime(2025, 3, 10, 9, tzinfo=NEW_YORK))
    assert found.since == local("2025-03-09T12", NEW_YORK)


@each("said", ["刚才", "just now"])
def test_the_last_hour_is_an_hour_when_clocks_fall_back(said: str) -> None:
    second_half_past_one = datetime(2025, 11, 2, 1, 30, tzinfo=NEW_YORK, fold=1)
    found = only(said, second_half_past_one)
    assert found.since == micros(datetime(2025, 11, 2, 5, 30, tzinfo=UTC))
    assert found.until == micros(datetime(2025, 11, 2, 6, 30, tzinfo=UTC)) + 1


def test_a_day_that_a_zone_skipped_is_no_phrase() -> None:
    now = datetime(2011, 12, 31, 9, tzinfo=ZoneInfo("Pacific/Apia"))
    assert time_phrases("昨天 yesterday", now) == []


@each("text", ["昨天", "yesterday", ""])
def test_a_clock_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="time zone"):
        time_phrases(text, datetime(2025, 6, 18))


@each("now", [datetime.min, datetime.max])
@each("text", [" ".join(PHRASES), " ".join(NOT_TIMES)])
def test_the_ends_of_the_calendar_raise_nothing(text: str, now: datetime) -> None:
    for zone in (UTC, SHANGHAI, NEW_YORK):
        time_phrases(text, now.replace(tzinfo=zone))


@each("unit", ["三", "last ", "1", " ", "a couple of "])
def test_long_hostile_text_is_read_in_one_pass(unit: str) -> None:
    """A pattern that tries every split of a run would not finish on 100 KB."""
    assert time_phrases(unit * (100_000 // len(unit.encode())), NOW) == []


CLOCKS = st.datetimes(
    min_value=datetime(1950, 1, 1),
    max_value=datetime(2100, 1, 1),
    timezones=st.sampled_from([UTC, SHANGHAI, NEW_YORK, ZoneInfo("Australia/Lord_Howe")]),
)
CHARACTERS = "一二三十零半几个上下前后这本年月日号周天今明昨春初末，。 1290-/"
PIECES = st.sampled_from([*PHRASES, *CHARACTERS, "last", "may", "ago", "99999"])
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join))


@given(text=TEXTS, now=CLOCKS)
def test_any_text_gives_ordered_phrases_that_stand_in_it(text: str, now: datetime) -> None:
    end = 0
    for found in time_phrases(text, now):
        assert end <= found.start < found.end
        assert found.phrase == text[found.start : found.end]
        assert found.since < found.until
        end = found.end


@given(text=TEXTS, now=CLOCKS)
def test_read_ahead_a_text_has_the_same_phrases(text: str, now: datetime) -> None:
    past, ahead = time_phrases(text, now), time_phrases(text, now, ahead=True)
    assume(not any(it.holiday for it in [*past, *ahead]))  # some dates are known for a few years
    assert [(it.start, it.end) for it in past] == [(it.start, it.end) for it in ahead]


@given(text=TEXTS, now=CLOCKS)
def test_what_is_read_otherwise_ahead_is_later_and_not_over(text: str, now: datetime) -> None:
    past = {it.start: it for it in time_phrases(text, now)}
    for found in time_phrases(text, now, ahead=True):
        before = past.get(found.start, found)
        assert before == found or (found.until > micros(now) and before.until <= found.until)


RECURRING = [
    said for said, *_ in spoken(AHEAD) if not re.search("[昨上去下]|yester|last|this|2024", said)
]


@given(said=st.sampled_from(RECURRING), now=CLOCKS)
def test_read_ahead_a_phrase_without_a_year_is_never_over(said: str, now: datetime) -> None:
    for found in time_phrases(said, now, ahead=True):
        assert found.until > micros(now)


@given(
    said=st.sampled_from(PHRASES),
    around=st.sampled_from(
        [("我", "去了"), ("we met ", " at home"), ("（", "）"), ("", "，"), ("\n", "\n")]
    ),
    now=CLOCKS,
)
def test_a_phrase_means_the_same_between_other_words(
    said: str, around: tuple[str, str], now: datetime
) -> None:
    alone, before = time_phrases(said, now), len(around[0])
    inside = time_phrases(said.join(around), now)
    assert inside == [
        TimePhrase(one.since, one.until, one.phrase, one.start + before, one.end + before)
        for one in alone
    ]


@given(now=CLOCKS)
def test_both_languages_say_the_same(now: datetime) -> None:
    for both in ["昨天, yesterday", "上周, last week", "三天前, 3 days ago", "最近, recently"]:
        chinese, english = time_phrases(both, now)
        assert (chinese.since, chinese.until) == (english.since, english.until)
